"""What one read of an upstream brought, kept together on its way through an async generator of single events.

A wire sends events that came together in one piece; without this it could only learn whether there is another by
waiting for it, and what it holds back for that would come late.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator
from typing import Any, TypeVar

Item = TypeVar("Item")


class Bursts(AsyncGenerator[Item, None]):
    """The items of `bursts`, an async generator of iterables, one by one. A burst is used up before the next is read.

    What an iterable raises is raised in its place, and closes `bursts`.
    """

    def __init__(self, bursts: AsyncGenerator[Iterable[Item], None]) -> None:
        self._bursts = bursts
        self._items: Iterator[Item] = iter(())

    async def __anext__(self) -> Item:
        while True:
            try:
                for item in self._items:
                    return item
            except BaseException as error:
                await self._bursts.athrow(error)
                raise
            self._items = iter(await anext(self._bursts))

    def rest(self) -> Iterator[Item]:
        """The items that came together with the last one."""
        return self._items

    async def asend(self, value: None) -> Item:
        return await anext(self)

    async def athrow(self, kind: Any, value: Any = None, traceback: Any = None, /) -> Item:
        self._items = iter(await self._bursts.athrow(kind, value, traceback))
        return await anext(self)

    async def aclose(self) -> None:
        await self._bursts.aclose()
