"""Cancelling what an upstream would go on with, and bill, after its reader has left.

The reader is not kept waiting: each cancellation is a task of the provider, which awaits it when it closes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from gateway.config import ProviderRow
from gateway.errors import GatewayError, NotFound

log = logging.getLogger("polywire")

PAUSES = (0.0, 0.2, 1.0)
"""Seconds before each attempt."""
ATTEMPT_SECONDS = 10.0
CLOSE_SECONDS = 2.0


class Cancellations:
    """The cancellations of one provider that are on their way."""

    def __init__(self, row: ProviderRow) -> None:
        self._row = row
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, prediction_id: str, cancel: Callable[[], Awaitable[object]]) -> None:
        """Send `cancel` now, and again if it fails; a cancellation that is lost is logged, since it costs money."""
        task = asyncio.create_task(self._run(prediction_id, cancel))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        """Wait at most CLOSE_SECONDS for what is on its way, then give it up."""
        tasks = set(self._tasks)
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=CLOSE_SECONDS)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def _run(self, prediction_id: str, cancel: Callable[[], Awaitable[object]]) -> None:
        reason = ""
        try:
            for pause in PAUSES:
                await asyncio.sleep(pause)
                try:
                    async with asyncio.timeout(ATTEMPT_SECONDS):
                        await cancel()
                except NotFound:
                    return
                except GatewayError as error:
                    reason = error.message
                except TimeoutError:
                    reason = "it did not answer in time"
                else:
                    return
        except asyncio.CancelledError:
            self._lost(prediction_id, "Polywire is stopping")
            raise
        self._lost(prediction_id, reason)

    def _lost(self, prediction_id: str, reason: str) -> None:
        name = self._row.name
        log.error(
            "a prediction (%s) of provider %r could not be cancelled and may go on: %s", prediction_id, name, reason
        )
