"""Stops the runs of this worker that other workers' clients cancel.

Listens only while there are runs, and a while longer: a store may have to watch for what others write meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from gateway.errors import GatewayError
from gateway.ports import Store
from gateway.run import Run
from gateway.tasks import Tasks

RETRY_SECONDS = 0.5
REST_SECONDS = 10.0
"""After the last run: another one that comes soon finds everything ready."""


class Cancels:
    """Listens to `channel`, whose messages are ids of `runs`."""

    def __init__(self, store: Store, channel: str, runs: Mapping[str, Run]) -> None:
        self._store, self._channel, self._runs = store, channel, runs
        self._tasks = Tasks()
        self._listening: asyncio.Task[None] | None = None
        self._heard = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    async def heard(self) -> None:
        """From here on a cancel is heard, unless the store cannot be used."""
        if self._listening is None:
            self._heard.clear()
            self._listening = self._tasks.start(self._listen())
        await self._heard.wait()

    def rest(self) -> None:
        """A run has ended."""
        if not self._runs and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(REST_SECONDS, self._stop)

    async def aclose(self) -> None:
        """Listen no more."""
        if self._timer is not None:
            self._timer.cancel()
        await self._tasks.aclose()

    def _stop(self) -> None:
        self._timer = None
        if not self._runs and self._listening is not None:
            self._listening.cancel()
            self._listening = None

    async def _listen(self) -> None:
        while True:
            try:
                async with self._store.signals(self._channel) as asked:
                    self._heard.set()
                    async for id in asked:
                        if (run := self._runs.get(id.decode())) is not None:
                            run.stop()
            except GatewayError:
                self._heard.set()
                await asyncio.sleep(RETRY_SECONDS)
