"""One prediction at work in this process: its stream played into its recording until it ends or is stopped."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any

from gateway.errors import GatewayError, InternalError, UpstreamTimeout
from gateway.events import Failed, Finished, FinishReason, Started
from gateway.prediction import Prediction
from gateway.recording import Recorder
from gateway.streams import EventStream
from gateway.telemetry import current_request, log_refusal

LONGEST_RUN = 1800.0
"""Seconds, as Replicate bounds a run."""
CANCELLED = Finished(FinishReason.CANCELLED)

Stream = AbstractAsyncContextManager[EventStream[Any]]


class Run:
    """Plays `stream`. `done` is set once the prediction's end is stored."""

    def __init__(self, prediction: Prediction, stream: Stream, recorder: Recorder) -> None:
        self.prediction = prediction
        self.recorder = recorder
        self.done = asyncio.Event()
        self._stream = stream
        self._task: asyncio.Task[Any] | None = None
        self._stopped: Finished | Failed | None = None

    def stop(self, terminal: Finished | Failed = CANCELLED) -> None:
        """End the run as `terminal` says; only the first stop counts, and none after its end."""
        if self._stopped is not None:
            return
        self._stopped = terminal
        if self._task is not None:
            self._task.cancel()

    async def play(self) -> Finished | Failed:
        """Record the stream; gives its terminal event, which is not recorded yet."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in a task
        try:
            if self._past_deadline():
                self.stop()
            if self._stopped is None:
                self._task = task
                with self._timers():
                    return await self._record()
        except GatewayError as error:
            if (request := current_request.get()) is not None:
                request.code = error.code
                log_refusal(request, error.status)
            return Failed(error)
        except asyncio.CancelledError:
            if self._stopped is None or task.uncancel() > 0:
                raise
        finally:
            self._task = None
        return self._stopped or CANCELLED

    async def _record(self) -> Finished | Failed:
        async with self._stream as events:
            async for event in events:
                match event:
                    case Finished() | Failed():
                        return event
                    case Started():
                        pass
                    case _:
                        await self.recorder.add(event)
        raise InternalError("The stream ended without a terminal event.")

    def _past_deadline(self) -> bool:
        return self.prediction.deadline is not None and self.prediction.deadline <= time.time()

    @contextmanager
    def _timers(self) -> Iterator[None]:
        """The run's deadline, and the bound on every run."""
        too_long = Failed(UpstreamTimeout(f"The prediction ran for longer than {LONGEST_RUN:g} s."))
        loop = asyncio.get_running_loop()
        timers = [loop.call_later(LONGEST_RUN, self.stop, too_long)]
        if self.prediction.deadline is not None:
            timers.append(loop.call_later(max(0.0, self.prediction.deadline - time.time()), self.stop))
        try:
            yield
        finally:
            for timer in timers:
                timer.cancel()
