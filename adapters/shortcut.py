"""The short way of what arrives: decoded and given to a taker within the call of the event loop that read it.

What ends a stream, and a failure with all that came before it in the same piece, is left for the generator.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from itertools import chain
from typing import Generic, Self, TypeVar

from aiohttp import ClientResponse

from adapters.http import LARGEST_PIECE, read_piece
from adapters.resuming import taking
from gateway.bursts import Bursts, failing
from gateway.events import Delta, Finished

Item = TypeVar("Item")


class Shortcut(Generic[Item]):
    """Of one stream, whose `bursts` come out of `shortened`.

    Iterated within `with shortcut.read(...)`, it gives what was not taken. Not a generator: each request has one.
    """

    __slots__ = ("_decode", "_ended", "_given", "_left", "_piece", "_response", "_taking", "bursts")

    bursts: Bursts[Item]

    def read(
        self,
        response: ClientResponse,
        decode: Callable[[bytes], Iterable[Item]],
        ended: Callable[[], bool] = lambda: False,
        *,
        first: bytes = b"",
    ) -> Self:
        """What `decode` makes of each piece of the body that was not taken: all of it, or until `ended`.

        `first` was read before. Iterating raises aiohttp's exceptions; `HttpUpstream.send` tells them as GatewayErrors.
        """
        self._response, self._decode, self._ended, self._piece = response, decode, ended, first
        self._left: Iterator[Item] | None = None
        self._given = False
        self._taking = taking(response, self.take)
        return self

    def __enter__(self) -> Self:
        self._taking.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._taking.__exit__()
        # It refers to this object.
        del self._taking

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Iterable[Item]:
        # By now the last burst was used up: `decode` may be lazy.
        if self._given and self._ended():
            raise StopAsyncIteration
        piece, self._piece = self._piece or await read_piece(self._response), b""
        if not piece:
            raise StopAsyncIteration
        self._given = True
        return self._decode(piece) if self._left is None else self._left

    def take(self, piece: bytes) -> bool:
        """Whether all items of `piece` were taken; if not, the generator is woken with it."""
        taker = self.bursts.taker
        if taker is None or self._left is not None or len(piece) > LARGEST_PIECE or not taker.ready():
            return False
        items: list[Item] = []
        try:
            # Those before a failure stay in the list.
            items.extend(self._decode(piece))
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
    shortcut: Shortcut[Item] = Shortcut()
    shortcut.bursts = bursts = Bursts(reads(shortcut))
    return bursts
