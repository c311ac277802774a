"""Bounds on waiting, with one timer per stream instead of one per event."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

Result = TypeVar("Result")


class Waited(Exception):
    """A wait was longer than its limit."""


class WaitLimit:
    """Bounds one wait after the other in the same task: `await limit.within(seconds, awaitable)`.

    A timer that is already set to ring later is left alone, so a wait that ends in time costs no timer at all.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._deadline: float | None = None
        self._task: asyncio.Task[object] | None = None
        self._expired = False

    async def within(self, seconds: float | None, awaitable: Awaitable[Result]) -> Result:
        """The awaitable's result. Raises Waited after `seconds` (None: never), when the awaitable was cancelled."""
        if seconds is None:
            return await awaitable
        deadline = self._loop.time() + seconds
        self._deadline, self._task, self._expired = deadline, asyncio.current_task(), False
        if self._timer is None or self._timer.when() > deadline:
            self._arm(deadline)
        try:
            return await awaitable
        except asyncio.CancelledError:
            if self._expired and self._task is not None and self._task.uncancel() == 0:
                raise Waited from None
            raise
        finally:
            self._deadline = None

    def stop(self) -> None:
        """Drop the timer; the object can be used again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, when: float) -> None:
        self.stop()
        self._timer = self._loop.call_at(when, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._deadline is None or self._task is None:
            return
        if self._loop.time() < self._deadline - 0.001:
            self._arm(self._deadline)
            return
        self._expired = True
        self._task.cancel()
