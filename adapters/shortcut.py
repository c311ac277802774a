"""The short way of what arrives: decoded and given to a taker within the call of the event loop that read it.

What ends a stream, and a failure with all that came before it in the same piece, is left for the generator.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from itertools import chain
from typing import Generic, TypeVar

from aiohttp import ClientResponse

from adapters.http import LARGEST_PIECE, read_piece
from adapters.resuming import taking
from gateway.bursts import Bursts, failing
from gateway.events import Delta, Finished

Item = TypeVar("Item")


class Shortcut(Generic[Item]):
    """Of one stream, whose `bursts` come out of `shortened`."""

    __slots__ = ("_decode", "_ended", "_left", "bursts")

    bursts: Bursts[Item]
    _decode: Callable[[bytes], Iterable[Item]]
    _ended: Callable[[], bool]
    _left: Iterator[Item] | None

    async def read(
        self,
        response: ClientResponse,
        decode: Callable[[bytes], Iterable[Item]],
        ended: Callable[[], bool] = lambda: False,
        *,
        first: bytes = b"",
    ) -> AsyncGenerator[Iterable[Item], None]:
        """What `decode` makes of each piece of the body that was not taken: all of it, or until `ended`.

        `first` was read before. Raises aiohttp's exceptions, which `HttpUpstream.send` tells as GatewayErrors.
        """
        self._decode, self._ended, self._left = decode, ended, None
        piece = first or await read_piece(response)
        with taking(response, self.take):
            while piece:
                yield decode(piece) if self._left is None else self._left
                if ended():
                    return
                piece = await read_piece(response)

    def take(self, piece: bytes) -> bool:
        """Whether all items of `piece` were taken; if not, the generator is woken with it."""
        taker = self.bursts.taker
        if taker is None or self._left is not None or len(piece) > LARGEST_PIECE or not taker.ready():
            return False
        items: list[Item] = []
        try:
            for item in self._decode(piece):
                items.append(item)
            if self._ended():
                self._left = iter(items)
            elif items:
                given, items = items, []
                taker.take(given)
        except Exception as error:
            self._left = chain(items, failing(error))
        return self._left is None


ChatShortcut = Shortcut[Delta | Finished]
ChatBursts = AsyncGenerator[Iterable[Delta | Finished], None]


def shortened(reads: Callable[[Shortcut[Item]], AsyncGenerator[Iterable[Item], None]]) -> Bursts[Item]:
    """The items of `reads`, which gives the shortcut its response to `read`."""
    shortcut = Shortcut[Item]()
    shortcut.bursts = bursts = Bursts(reads(shortcut))
    return bursts
