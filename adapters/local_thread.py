"""One thread of its own for an engine that blocks: steps run off the event loop, the most urgent that waits first.

A stream submits its next step when the last one is done, so streams take turns and nothing queues without a bound.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, ParamSpec, TypeVar

from gateway.errors import UpstreamUnavailable

CLOSE_SECONDS = 0.25
"""What a stop can wait for: nobody hears any more what the step at work makes."""

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
        self._name = name
        self._thread: Thread | None = None
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
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
        waiting = self._step(lambda: step(*args, **kwargs), due)
        with self._lock:
            heappush(self._waiting, waiting)
        self._submit(self._run_next)
        result: Result = await asyncio.wrap_future(waiting.done)
        return result

    def leave(self, step: Callable[[], object]) -> None:
        """Have `step` run after the one that is at work, without waiting: for a `finally` that must not linger."""
        if self._closed and not (self._thread and self._thread.is_alive()):
            step()
        else:
            self._submit(self._step(step).run)

    async def aclose(self) -> None:
        """End the thread after the steps at work. One that goes on for longer, such as a model's loading, is left."""
        if self._closed:
            return
        self._closed = True
        if (thread := self._thread) is None:
            return
        last = self._step(lambda: None)
        self._submit(last.run)
        self._submit(None)
        _, late = await asyncio.wait([asyncio.wrap_future(last.done)], timeout=CLOSE_SECONDS)
        if late:
            last.done.cancel()
            atexit.register(_leave_process, thread)
        else:
            thread.join()

    def _step(self, work: Callable[[], object], due: float = 0.0) -> _Step:
        return _Step(due, next(self._numbers), work)

    def _submit(self, job: Callable[[], object] | None) -> None:
        if self._thread is None:
            # A daemon, since the interpreter's end would wait for any other thread, however long its step takes.
            self._thread = Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def _run_next(self) -> None:
        """Run the most urgent step; called once for each."""
        with self._lock:
            step = heappop(self._waiting)
        step.run()


def _leave_process(thread: Thread) -> None:
    """Whatever needs an end has had it by now. The interpreter must not be taken down beneath native code at work."""
    if thread.is_alive():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
