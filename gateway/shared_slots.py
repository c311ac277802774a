"""A bound on the streams of one key, whichever worker or replica has them: counted in the store.

A slot is taken out of a bucket that hardly fills up by itself and put back at the stream's end. What a dead worker had
taken another one puts back, by its leases.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from gateway.errors import GatewayError, RateLimited
from gateway.leases import Leases
from gateway.ports import Store
from gateway.prediction import random_id
from gateway.tasks import Tasks

KIND = "slot"
DAY = 86_400.0
"""Seconds in which a bucket fills up: what is lost when a worker dies between its two writes is there the next day."""


class SharedSlots:
    """At most `each` streams of one owner at a time; a further one is refused at once."""

    def __init__(self, store: Store, each: int) -> None:
        self._store = store
        self._each = each
        self._ends = Tasks()
        self._watching = Tasks()
        self._started = False
        self._leases = Leases(store, KIND, abandoned=self._put_back, lost=lambda _: None)

    @asynccontextmanager
    async def take(self, owner: str) -> AsyncIterator[None]:
        """One slot for the length of the block. Raises RateLimited, or GatewayError when the store does not answer."""
        if not self._started:
            self._started = True
            self._leases.start(self._watching)
        id = f"{owner}.{random_id()}"
        taking = asyncio.create_task(self._take(owner, id))
        try:
            # Whoever leaves meanwhile must not leave a slot that was taken and is nobody's.
            await asyncio.shield(taking)
            yield
        finally:
            # A stream that is cancelled does not wait for the store.
            self._ends.start(self._end(taking, id))

    async def demand(self, owner: str) -> None:
        """Raises RateLimited when there is no slot now."""
        await self._change(owner, 1)
        await self._change(owner, -1)

    async def aclose(self) -> None:
        """Put back what has ended, and end the lease."""
        await self._ends.wait(1.0)
        await self._ends.aclose()
        await self._watching.aclose()
        if self._started:
            with suppress(GatewayError):
                await self._leases.aclose()

    async def _take(self, owner: str, id: str) -> None:
        await self._change(owner, 1)
        try:
            await self._leases.hold(id)
        except GatewayError:
            await self._change(owner, -1)
            raise

    async def _end(self, taking: asyncio.Task[None], id: str) -> None:
        await asyncio.wait([taking])
        if taking.exception() is None:
            self._leases.drop(id)
            # If the store does not answer, the sweep tries again.
            with suppress(GatewayError):
                await self._put_back(id)

    async def _put_back(self, id: str) -> None:
        # Whoever deletes it puts it back, so that no slot comes back twice.
        if await self._store.delete(KIND, id):
            await self._change(id.rpartition(".")[0], -1)

    async def _change(self, owner: str, amount: int) -> None:
        wait = await self._store.take(f"streams:{owner}", amount, capacity=self._each, per_seconds=DAY)
        if wait:
            raise RateLimited(
                f"This key may have {self._each} streams at a time; try again when one has ended.", retry_after=1
            )
