"""The one place where the grammar of `gateway/events.py` is enforced.

`open_stream` starts a provider, waits for its first event and hands out an `EventStream` that ends in exactly one
terminal event whatever the provider does.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, MutableSequence, Sequence
from typing import Generic, Self, TypeVar

from gateway.bursts import Bursts, Taker
from gateway.errors import GatewayError, InternalError, Truncated, UpstreamTimeout
from gateway.events import (
    AudioDelta,
    AudioStart,
    Failed,
    Finished,
    ReasoningDelta,
    Started,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
)
from gateway.patience import Patience, Waited, WaitLimit, retry_pause
from gateway.stopping import Calling, Stage, Stopping, shutting_down
from gateway.telemetry import Meter

log = logging.getLogger("polywire")

ProviderEventT = TypeVar("ProviderEventT", bound=StreamEvent)
Source = Callable[[], AsyncGenerator[ProviderEventT, None]]

CLOSE_SECONDS = 5.0
"""How long a provider may take to close before its reader goes on without it."""

EVENTS_PER_BREATH = 32
"""A provider that has everything at once lets other streams go on after so many events."""


class EventStream(Generic[ProviderEventT]):
    """One stream: iterate it with `async for`. The last event is `Finished` or `Failed`, and there is only one.

    Built by `open_stream`; a wire never constructs it.
    """

    def __init__(
        self,
        source: Source[ProviderEventT],
        started: Started,
        patience: Patience,
        meter: Meter,
        stopping: Stopping | None,
    ) -> None:
        self.started = started
        self._open = source
        self._events: AsyncGenerator[ProviderEventT, None] | None = None
        self._patience = patience
        self.meter = meter
        self._wait = WaitLimit()
        self._taker: Taker[StreamEvent] | None = None
        self._ready: deque[StreamEvent] = deque((started,))
        self._tool_calls = 0
        self._unbroken = 0
        self._audio = False
        self._ended = False
        self._stopped: GatewayError | None = None
        self._stopping = stopping
        self._ends: Calling | None = None

    async def __aenter__(self) -> Self:
        if self._stopping is not None:
            self._ends = self._stopping.at(Stage.ENDING, lambda: self.stop(shutting_down()))
            self._ends.__enter__()
        try:
            await self.first()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._ends is not None:
            self._ends.__exit__()
            self._ends = None
        try:
            await self.aclose()
        finally:
            self.meter.close()

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        return self

    async def __anext__(self) -> StreamEvent:
        ready = self._ready
        while not ready:
            if self._ended:
                raise StopAsyncIteration
            try:
                await self._read(self._patience.idle)
            except GatewayError as error:
                ready.append(self._end(Failed(error)))
        return ready.popleft()

    def rest(self) -> Sequence[StreamEvent]:
        """The events that are there already, so that they may be sent together with the last one."""
        rest = tuple(self._ready)
        self._ready.clear()
        return rest

    @property
    def ended(self) -> bool:
        """Whether the last event was taken."""
        return self._ended and not self._ready

    def hand_to(self, taker: Taker[StreamEvent]) -> None:
        """Let `taker` have events as they arrive. Who iterates sleeps meanwhile, and still gets the last event."""
        self._taker = taker
        if isinstance(self._events, Bursts):
            self._events.taker = self

    def ready(self) -> bool:
        """For the provider's bursts: whether an event may go past the iteration, which must be waiting for one."""
        if self._taker is None or self._ready or self._ended or self._stopped is not None:
            return False
        return self._taker.ready()

    def take(self, items: Sequence[ProviderEventT]) -> None:
        """For the provider's bursts, while `ready`. Raises InternalError for events that are against the grammar."""
        accepted: list[StreamEvent] = []
        try:
            self._accept_all(items, accepted)
        finally:
            self._wait.renew(self._patience.idle)
            if accepted and self._taker is not None:
                self._taker.take(accepted)

    async def first(self) -> None:
        """Wait for the provider's first event, trying again as configured. Raises GatewayError if there is none."""
        attempt = 0
        while len(self._ready) == 1:
            try:
                await self._read(self._patience.first_event)
            except GatewayError as error:
                pause = retry_pause(error, attempt)
                if len(self._ready) > 1:
                    self._ready.append(self._end(Failed(error)))
                    return
                if attempt >= self._patience.retries or pause is None or error is self._stopped:
                    self._end(Failed(error))
                    raise
                attempt += 1
                await self.aclose()
                await asyncio.sleep(pause)

    def stop(self, error: GatewayError) -> None:
        """End the stream with `error`, also while it waits for its provider."""
        if not self._ended and self._stopped is None:
            self._stopped = error
            self.meter.end(Failed(error))
            self._wait.ring()

    async def aclose(self) -> None:
        """Close the provider's generator, and with it the upstream connection."""
        events, self._events = self._events, None
        if events is None:
            return
        try:
            with self._wait.bounded(CLOSE_SECONDS):
                await events.aclose()
        except Exception:
            # The provider is at fault, and the stream has its terminal event already.
            log.exception("provider %r did not close", self.meter.provider)
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            log.error("provider %r was cancelled from within while it closed", self.meter.provider)
        finally:
            self._wait.stop()

    async def _read(self, limit: float | None) -> None:
        """Wait for the provider's next event and take it with all that came together with it.

        Raises GatewayError, never anything stray.
        """
        self._demand_going_on()
        if self._unbroken >= EVENTS_PER_BREATH:
            self._unbroken = 0
            await asyncio.sleep(0)
        self._demand_going_on()
        try:
            if self._events is None:
                self._events = self._open()
            with self._wait.bounded(limit):
                event = await self._events.__anext__()
            came = (event, *self._events.rest()) if isinstance(self._events, Bursts) else (event,)
            self._unbroken += len(came)
            self._accept_all(came, self._ready)
        except StopAsyncIteration:
            raise Truncated(
                f"Provider {self.meter.provider!r} ended without a terminal marker; the answer is incomplete.",
                provider=self.meter.provider,
            ) from None
        except Waited:
            self._demand_going_on()
            raise UpstreamTimeout(
                f"Provider {self.meter.provider!r} sent nothing for {limit:g} s.", provider=self.meter.provider
            ) from None
        except GatewayError as error:
            error.provider = error.provider or self.meter.provider
            raise
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                raise
            log.exception("provider %r raised", self.meter.provider)
            raise InternalError(
                f"Polywire failed while reading from provider {self.meter.provider!r}; the log has the cause.",
                provider=self.meter.provider,
            ) from error

    def _accept_all(self, events: Iterable[StreamEvent], accepted: MutableSequence[StreamEvent]) -> None:
        """Add those of `events` to `accepted` that say something and come before the end, or are it."""
        texts = 0
        try:
            for event in events:
                if type(event) is TextDelta:
                    # Nearly all are this, and no rule is there for it.
                    if event.text:
                        texts += 1
                        accepted.append(event)
                elif self._accept(event):
                    accepted.append(event)
                    if self._ended:
                        break
        finally:
            if texts:
                self.meter.deltas(texts)

    def _accept(self, event: StreamEvent) -> bool:
        """Check `event` against the grammar; False leaves it out."""
        match event:
            case AudioDelta(data=b"") | ReasoningDelta(text="", signature=None):
                return False
            case AudioDelta():
                self._demand(self._audio, "AudioDelta before AudioStart")
                self.meter.audio()
            case ReasoningDelta():
                self.meter.deltas(1)
            case ToolCallStart(index=index):
                self._demand(index == self._tool_calls, "ToolCallStart out of order")
                self._tool_calls += 1
                self.meter.deltas(1)
            case ToolCallDelta(index=index):
                self._demand(0 <= index < self._tool_calls, "ToolCallDelta before its ToolCallStart")
            case AudioStart():
                self._audio = True
            case Finished():
                self._end(event)
            case _:
                self._demand(False, f"{type(event).__name__} is not a provider's to yield")
        return True

    def _demand_going_on(self) -> None:
        if self._stopped is not None:
            raise self._stopped from None

    def _demand(self, held: bool, broken_rule: str) -> None:
        if not held:
            log.error("provider %r broke the grammar: %s", self.meter.provider, broken_rule)
            raise InternalError(f"Provider {self.meter.provider!r} sent events in an impossible order.")

    def _end(self, terminal: Finished | Failed) -> StreamEvent:
        self._ended = True
        self.meter.end(terminal)
        return terminal


def open_stream(
    source: Source[ProviderEventT], *, model: str, meter: Meter, patience: Patience, stopping: Stopping | None = None
) -> EventStream[ProviderEventT]:
    """Start `source` and wait for its first event, as an `async with` block; however that ends, the stream is closed.

    Entering it raises GatewayError when the provider refuses or fails before its first event: the wire can still answer
    with a true status. Everything after that arrives as a `Failed` event, also that the worker of `stopping` ends.
    """
    started = Started(os.urandom(16).hex(), model, int(time.time()))
    return EventStream(source, started, patience, meter, stopping)


def _is_cancelled() -> bool:
    """Whether somebody cancels this task. A CancelledError without that is a fault inside the provider."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
