"""One thread of its own for an engine that blocks: steps run off the event loop, the most urgent that waits first.

A stream submits its next step when the last one is done, so streams take turns and nothing queues without a bound.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from threading import Lock
from typing import Any, ParamSpec, TypeVar

from gateway.errors import UpstreamUnavailable

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


@dataclass(order=True, slots=True)
class _Step:
    due: float
    number: int
    work: Callable[[], Any] = field(compare=False)
    done: Future[Any] = field(compare=False, default_factory=Future)

    def run(self) -> None:
        if not self.done.set_running_or_notify_cancel():
            return
        try:
            self.done.set_result(self.work())
        except BaseException as error:
            self.done.set_exception(error)


class EngineThread:
    """Runs steps one after the other. The thread starts with the first step and ends with `aclose`."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._waiting: list[_Step] = []
        self._lock = Lock()
        self._numbers = count()
        self._closed = False

    async def run(
        self, step: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """The step's result. When the caller is cancelled, a step that waits is dropped and a running one finishes."""
        return await self.run_by(time.monotonic(), step, *args, **kwargs)

    async def run_by(
        self, due: float, step: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """`run`, before all steps that are due later than this one, by `time.monotonic()`."""
        if self._closed:
            raise UpstreamUnavailable("The embedded models are being closed.")
        waiting = _Step(due, next(self._numbers), lambda: step(*args, **kwargs))
        with self._lock:
            heappush(self._waiting, waiting)
        self._pool.submit(self._work)
        result: Result = await asyncio.wrap_future(waiting.done)
        return result

    def leave(self, step: Callable[[], object]) -> None:
        """Have `step` run after the one that is at work, without waiting: for a `finally` that must not linger."""
        try:
            self._pool.submit(step)
        except RuntimeError:
            # The thread has ended, so no step is at work.
            step()

    async def aclose(self) -> None:
        """Wait for the steps at work, then end the thread."""
        if self._closed:
            return
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(self._pool, _rest)
        self._pool.shutdown()

    def _work(self) -> None:
        """Run the most urgent step; called once for each."""
        with self._lock:
            step = heappop(self._waiting)
        step.run()


def _rest() -> None:
    """The last step: once it has run, the thread has nothing left and `shutdown` returns at once."""
