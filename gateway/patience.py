"""Bounds on waiting, with one timer per stream instead of one per event, and the pause before another try."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Self, TypeVar

from gateway.errors import GatewayError, UpstreamTimeout

Result = TypeVar("Result")

RING_AGAIN_SECONDS = 1.0
"""Pause before an awaitable that took no notice of its cancellation is cancelled once more."""

LONGEST_RETRY_WAIT = 5.0
"""Seconds. A provider that asks for a longer pause is not retried; its caller learns the pause instead."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a provider may be silent, in seconds (None: for ever), and how often its start is tried again."""

    first_event: float | None = 60.0
    idle: float | None = 60.0
    retries: int = 0


class Waited(Exception):
    """A wait was longer than its limit."""


class WaitLimit:
    """Bounds one wait after the other in the same task: `with limit.bounded(seconds): ... = await awaitable`.

    A timer that is already set to ring later is left alone, so a wait that ends in time costs no timer at all.
    """

    __slots__ = ("_again", "_cancelled_before", "_deadline", "_loop", "_rings", "_task", "_timer")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._deadline: float | None = None
        self._again = 0.0
        self._task: asyncio.Task[object] | None = None
        self._cancelled_before = 0
        self._rings = 0

    def bounded(self, seconds: float | None) -> Self:
        """Begin a wait of `seconds` at most (None: without end). The block raises Waited when it was cancelled for it.

        The plain form for hot paths: no coroutine stands between the block's awaitable and its task.
        """
        deadline = math.inf if seconds is None else self._loop.time() + seconds
        self._deadline, self._rings = deadline, 0
        self._task = task = asyncio.current_task(self._loop)
        self._again = RING_AGAIN_SECONDS if seconds is None else seconds
        self._cancelled_before = task.cancelling() if task else 0
        if seconds is not None and (self._timer is None or self._timer.when() > deadline):
            self._arm(deadline)
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        self._deadline = None
        # Whatever the awaitable makes of its cancellation; it is Waited unless the task is cancelled by others too.
        if self._rings and self._take_back() and isinstance(error, Exception | asyncio.CancelledError):
            raise Waited from None

    async def within(self, seconds: float | None, awaitable: Awaitable[Result]) -> Result:
        """The awaitable's result. Raises Waited after `seconds` (None: never), when the awaitable was cancelled."""
        with self.bounded(seconds):
            return await awaitable

    def renew(self, seconds: float | None) -> None:
        """Let the wait that goes on begin anew: something came, past the task that waits."""
        if self._deadline is not None and seconds is not None:
            self._deadline = self._loop.time() + seconds

    def ring(self) -> None:
        """End the wait that goes on now, if one does, as if its time were over."""
        if self._deadline is not None:
            self._deadline = self._loop.time()
            self._disarm()
            self._ring()

    def stop(self) -> None:
        """Drop the timer, and outside of a wait the task, which may hold this object; it can be used again."""
        if self._deadline is None:
            self._task = None
        self._disarm()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _take_back(self) -> bool:
        """Undo our cancellations of the task; True when there was one and nobody else has cancelled it meanwhile."""
        if not self._rings or self._task is None:
            return False
        for _ in range(self._rings):
            self._task.uncancel()
        self._rings = 0
        return self._task.cancelling() <= self._cancelled_before

    def _arm(self, when: float) -> None:
        self._disarm()
        self._timer = self._loop.call_at(when, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._deadline is None or self._task is None:
            return
        if self._loop.time() < self._deadline - 0.001:
            if self._deadline < math.inf:
                self._arm(self._deadline)
            return
        self._rings += 1
        self._task.cancel()
        # Again for an awaitable that goes on waiting, in its `finally` say.
        self._deadline = self._loop.time() + min(self._again, RING_AGAIN_SECONDS)
        self._arm(self._deadline)


def retry_pause(error: GatewayError, attempt: int) -> float | None:
    """Seconds to wait before trying again, None when trying again is no use."""
    if not error.retryable or isinstance(error, UpstreamTimeout):
        return None
    if error.retry_after is not None:
        return error.retry_after if error.retry_after <= LONGEST_RETRY_WAIT else None
    return float(0.25 * 2**attempt * random.uniform(0.75, 1.0))  # noqa: S311 - jitter, not a secret
