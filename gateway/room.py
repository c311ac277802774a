"""Room for streams: how many this worker has at work, and how many each key has on all workers together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from gateway.buckets import several_count
from gateway.config import Settings
from gateway.ports import Store
from gateway.shared_slots import SharedSlots
from gateway.slots import Slots


class Room:
    """The bounds `streams` and `streams_per_key` of one configuration."""

    def __init__(self, settings: Settings, store: Store | None) -> None:
        each = settings.limits.streams_per_key
        self._shared: SharedSlots | None = None
        if store is not None and each is not None and several_count(settings):
            self._shared, each = SharedSlots(store, each), None
        self._slots = Slots(settings.limits.streams, each)

    @property
    def activity(self) -> tuple[bool, float]:
        """Whether streams are at work here, and since when that is so, in Unix seconds."""
        return self._slots.activity

    async def demand(self, owner: str) -> None:
        """Raises RateLimited when no stream of `owner` can begin."""
        self._slots.demand(owner)
        if self._shared is not None:
            await self._shared.demand(owner)

    def take(self, owner: str) -> AbstractAsyncContextManager[None]:
        """Room for one stream for the length of the block. Raises RateLimited when there is none."""
        return self._slots.take(owner) if self._shared is None else self._take_both(self._shared, owner)

    async def aclose(self) -> None:
        """Give back what other workers count."""
        if self._shared is not None:
            await self._shared.aclose()

    @asynccontextmanager
    async def _take_both(self, shared: SharedSlots, owner: str) -> AsyncIterator[None]:
        with self._slots.take(owner):
            async with shared.take(owner):
                yield
