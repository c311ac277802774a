"""An owner for tasks that outlive the call that began them: it logs their faults and awaits them at the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

log = logging.getLogger("polywire")

Result = TypeVar("Result")


class Tasks:
    """Starts tasks and keeps them until they are done."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Run `work` in a task of its own."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def wait(self, seconds: float) -> None:
        """Give what runs up to `seconds` to end by itself."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    async def aclose(self) -> None:
        """Cancel what still runs and wait for it."""
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task of the service failed", exc_info=error)
