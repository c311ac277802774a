"""Which worker has what at work, so that others can end what a dead one left behind.

A worker that has something at work renews its lease every second. One whose lease was missing in two sweeps, between
which a living worker would have renewed it, is dead: a store that was away for a while makes nobody look so.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from gateway.errors import GatewayError
from gateway.ports import Document, Store
from gateway.prediction import random_id
from gateway.tasks import Tasks

log = logging.getLogger("polywire")

WORKER = "worker"
DIED = "worker_died"
LEASE_SECONDS = 5.0
BEAT_SECONDS = 1.0
SWEEP_SECONDS = 1.5
"""What a dead worker had at work is ended at the latest after the lease and two sweeps."""
SWEPT_AT_ONCE = 500
GOODBYE_SECONDS = 0.25


class Leases:
    """What this worker has at work, one document of `kind` for each.

    `abandoned` ends what another worker left behind; `lost` is told what of this worker's is in the store no more,
    because another worker ended it or because the store has forgotten it.
    """

    def __init__(
        self, store: Store, kind: str, *, abandoned: Callable[[str], Awaitable[None]], lost: Callable[[str], None]
    ) -> None:
        self.worker = random_id()
        self._store = store
        self._kind = kind
        self._abandoned = abandoned
        self._lost = lost
        self._held: set[str] = set()
        self._stored: set[str] = set()
        self._suspects: set[str] = set()
        self._leased_until = 0.0

    def start(self, tasks: Tasks) -> None:
        """Renew and sweep until `tasks` are closed."""
        tasks.start(_repeat(BEAT_SECONDS, self._beat))
        tasks.start(_repeat(SWEEP_SECONDS, self.sweep))

    async def hold(self, id: str) -> None:
        """Say that this worker has `id` at work. Raises GatewayError when the store does not take it."""
        self._held.add(id)
        try:
            await asyncio.gather(self._lease(), self._store.put(self._kind, id, self.worker.encode(), owner=""))
        except GatewayError:
            self._held.discard(id)
            raise
        self._stored.add(id)

    async def release(self, id: str) -> None:
        """It has its end."""
        self._stored.discard(id)
        await self._store.delete(self._kind, id)

    def drop(self, id: str) -> None:
        """This worker does not have it at work any more; what is not released is swept."""
        self._stored.discard(id)
        self._held.discard(id)

    async def sweep(self) -> None:
        """End what dead workers left behind."""
        stored = set(self._stored)
        documents: tuple[Document, ...] = ()
        oldest: str | None = None
        suspects, self._suspects = self._suspects, set()
        while page := await self._store.list(self._kind, owner=None, limit=SWEPT_AT_ONCE, before=oldest):
            documents, oldest = (*documents, *page), page[-1].key
        for id in (stored & self._stored).difference(document.key for document in documents):
            self._stored.discard(id)
            self._lost(id)
        alive: dict[str, bool] = {}
        for document in documents:
            worker = document.value.decode()
            if worker == self.worker:
                forsaken = document.key not in self._held
            else:
                if worker not in alive:
                    alive[worker] = await self._store.get(WORKER, worker) is not None
                forsaken = not alive[worker]
            if forsaken and document.key in suspects:
                await self._abandoned(document.key)
            elif forsaken:
                self._suspects.add(document.key)

    async def aclose(self) -> None:
        """End the lease, which runs out by itself where the store does not answer."""
        with suppress(GatewayError, TimeoutError):
            async with asyncio.timeout(GOODBYE_SECONDS):
                await self._store.delete(WORKER, self.worker)

    async def _beat(self) -> None:
        if self._held:
            self._leased_until = time.monotonic() + LEASE_SECONDS / 2
            await self._store.put(WORKER, self.worker, b"", owner="", ttl=LEASE_SECONDS)

    async def _lease(self) -> None:
        if time.monotonic() > self._leased_until:
            await self._beat()


async def _repeat(seconds: float, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Do `work` every so often; a store that does not answer is tried again."""
    failing = False
    while True:
        await asyncio.sleep(seconds)
        try:
            await work()
        except GatewayError as error:
            if not failing:
                log.error("the leases of this worker: %s", error.message)
            failing = True
        else:
            failing = False
