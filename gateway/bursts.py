"""What one read of an upstream brought, kept together on its way through an async generator of single events.

A wire sends events that came together in one piece; without this it could only learn whether there is another by
waiting for it, and what it holds back for that would come late.

While the generator waits for its upstream, what arrives may also go straight to a `Taker`: then no task is woken and no
frame between the socket of the upstream and that of the client is passed that does nothing for the token.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from typing import Any, NoReturn, Protocol, TypeVar

Item = TypeVar("Item")
Taken = TypeVar("Taken", contravariant=True)


class Taker(Protocol[Taken]):
    """Who waits for items and takes them as they arrive, within the call of the event loop that read them."""

    def ready(self) -> bool:
        """Whether items would be taken now; if not, they are waited for as ever."""

    def take(self, items: Sequence[Taken]) -> None:
        """Take items, never the last one of a stream: whoever iterates gets that."""


class Bursts(AsyncGenerator[Item, None]):
    """The items of `bursts`, an async generator of iterables, one by one. A burst is used up before the next is read.

    What an iterable raises is raised in its place, and closes `bursts`.
    """

    __slots__ = ("_bursts", "_items", "taker")

    def __init__(self, bursts: AsyncGenerator[Iterable[Item], None]) -> None:
        self._bursts = bursts
        self._items: Iterator[Item] = iter(())
        self.taker: Taker[Item] | None = None
        """Whom `bursts` may give items past this iterator, while it is waited for."""

    async def __anext__(self) -> Item:
        while True:
            try:
                for item in self._items:
                    return item
            except BaseException as error:
                await self._bursts.athrow(error)
                raise
            self._items = iter(await anext(self._bursts))

    def rest(self) -> list[Item]:
        """The items that came together with the last one. A failure among them waits for the next `anext`."""
        rest: list[Item] = []
        try:
            for item in self._items:
                rest.append(item)
        except Exception as error:
            self._items = failing(error)
        return rest

    async def asend(self, value: None) -> Item:
        return await anext(self)

    async def athrow(self, kind: Any, value: Any = None, traceback: Any = None, /) -> Item:
        self._items = iter(await self._bursts.athrow(kind, value, traceback))
        return await anext(self)

    async def aclose(self) -> None:
        await self._bursts.aclose()


def failing(error: Exception) -> Iterator[NoReturn]:
    """Raises `error` in the place of the next item."""
    return map(_raise, (error,))


def _raise(error: Exception) -> NoReturn:
    raise error
