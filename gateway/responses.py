"""Answers that are kept after they were given: a document says what was asked, a log holds the events.

The stream goes to its client while it is written down, so a client that reads slowly still slows its provider. The log
has its end before the client sees the terminal event: whoever has seen that can ask for the response at once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from gateway.checks import is_whole
from gateway.config import Settings
from gateway.errors import Conflict, GatewayError, InternalError, NotFound, UpstreamTimeout
from gateway.events import Failed, Finished, FinishReason, Started, StreamEvent
from gateway.leases import DIED, Leases
from gateway.patience import Waited, WaitLimit
from gateway.ports import Store
from gateway.recording import Recorder, decode_event, encode_event, replay
from gateway.streams import EventStream
from gateway.tasks import Tasks

RESPONSE, WRITING = "response", "writing"
PAGE = 500
STOP_SECONDS = 0.5
"""For the ends of responses to be written when the service is stopped; those that are begun by then."""
STOPPED = Finished(FinishReason.CANCELLED)


@dataclass(frozen=True, slots=True)
class KeptResponse:
    """A response that was asked for. `content` is the wire's own: what it needs to show the response again."""

    id: str
    content: Mapping[str, Any]


class Responses:
    """Writes responses down and finds them again, for the owner of each and for nobody else."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._ttl = settings.limits.prediction_ttl_seconds
        self._silence = _longest_silence(settings)
        self._tasks, self._watching = Tasks(), Tasks()
        self._leases = Leases(store, WRITING, abandoned=self._bury, lost=lambda id: None)

    def start(self) -> None:
        """From now on, end what dead workers were writing."""
        self._leases.start(self._watching)

    @asynccontextmanager
    async def keep(
        self, stream: AbstractAsyncContextManager[EventStream[Any]], *, owner: str, content: Mapping[str, Any]
    ) -> AsyncIterator[AsyncIterator[StreamEvent]]:
        """Open `stream` and keep what it brings, as the response whose id is the stream's.

        Left before its terminal event, the response counts as cancelled. Raises GatewayError as `stream` does, and
        when the store does not answer.
        """
        tape: _Tape | None = None
        try:
            async with stream as events:
                started = events.started
                await self._begin(started, owner, content)
                tape = _Tape(self._store, started.id, self._ttl, self._tasks, self._leases)
                async with aclosing(tape.record(events)) as kept:
                    yield kept
        finally:
            if tape is not None:
                with suppress(GatewayError):
                    await tape.end(STOPPED)

    async def get(self, id: str, owner: str) -> KeptResponse:
        """One response of `owner`. Raises NotFound for another's, an expired and an unknown one alike."""
        document = await self._store.get(RESPONSE, id) if is_whole(id) else None
        if document is None or document.owner != owner:
            raise NotFound("There is no such response; responses are forgotten some time after their end.")
        return KeptResponse(id, json.loads(document.value))

    async def delete(self, id: str, owner: str) -> None:
        """Forget one response. Raises NotFound."""
        await self.get(id, owner)
        await self._store.delete(RESPONSE, id)

    async def so_far(self, id: str) -> AsyncGenerator[StreamEvent, None]:
        """What its stream has brought until now, page by page: other work goes on between."""
        after = 0
        while (page := await self._store.read(_log_of(id), after, PAGE)).entries:
            for _, entry in page.entries:
                yield decode_event(entry)
            after = page.entries[-1][0]

    @asynccontextmanager
    async def follow(self, id: str) -> AsyncIterator[AsyncIterator[StreamEvent]]:
        """Its whole stream from the first event to the terminal one, also while it is still being given."""
        async with (
            aclosing(replay(self._store, _log_of(id))) as recording,
            aclosing(self._bounded(recording)) as events,
        ):
            yield events

    async def aclose(self) -> None:
        """Wait until every end is written."""
        await self._tasks.wait(STOP_SECONDS)
        await self._tasks.aclose()
        await self._watching.aclose()
        await self._leases.aclose()

    async def _begin(self, started: Started, owner: str, content: Mapping[str, Any]) -> None:
        try:
            await asyncio.gather(
                self._leases.hold(started.id),
                self._store.put(RESPONSE, started.id, json.dumps(content).encode(), owner=owner, ttl=self._ttl),
                self._store.append(_log_of(started.id), [encode_event(started)], ttl=2 * self._ttl),
            )
        except GatewayError as error:
            # The provider has begun: asking again would be paid for again.
            error.retryable = False
            raise

    async def _bury(self, id: str) -> None:
        """End a response whose worker is gone."""
        error = InternalError("The worker that gave this response died or lost the store; ask again.", code=DIED)
        with suppress(Conflict):
            await Recorder(self._store, _log_of(id)).close(Failed(error), ttl=self._ttl)
        await self._leases.release(id)

    async def _bounded(self, recording: AsyncGenerator[StreamEvent, None]) -> AsyncGenerator[StreamEvent, None]:
        """The recording; one that is silent for longer than any stream may be has lost its writer."""
        wait = WaitLimit()
        try:
            while True:
                yield await wait.within(self._silence, anext(recording))
        except StopAsyncIteration:
            return
        except Waited:
            yield Failed(UpstreamTimeout("The worker that gave this response died."))
        finally:
            wait.stop()


class _Tape:
    """One response on its way into its log."""

    def __init__(self, store: Store, id: str, ttl: float, tasks: Tasks, leases: Leases) -> None:
        self._recorder = Recorder(store, _log_of(id), after=1)
        self._id = id
        self._ttl = ttl
        self._tasks = tasks
        self._leases = leases
        self._ended = False

    async def record(self, events: AsyncIterator[StreamEvent]) -> AsyncGenerator[StreamEvent, None]:
        """The same events, written down. Raises GatewayError when the store fails."""
        async for event in events:
            match event:
                case Started():
                    pass
                case Finished() | Failed():
                    await self.end(event)
                case _:
                    await self._add(event)
            yield event

    async def end(self, terminal: Finished | Failed) -> None:
        """Write everything and the last event; a second end changes nothing.

        It is written also when the client goes meanwhile, and its request with it.
        """
        if not self._ended:
            self._ended = True
            await asyncio.shield(self._tasks.start(self._write_end(terminal)))

    async def _add(self, event: StreamEvent) -> None:
        try:
            await self._recorder.add(event)
        except GatewayError as error:
            with suppress(GatewayError):
                await self.end(Failed(error))
            raise

    async def _write_end(self, terminal: Finished | Failed) -> None:
        try:
            with suppress(Conflict):
                await self._recorder.flush()
                await self._recorder.close(terminal, ttl=self._ttl)
            await self._leases.release(self._id)
        finally:
            self._leases.drop(self._id)


def _log_of(id: str) -> str:
    return f"{RESPONSE}:{id}"


def _longest_silence(settings: Settings) -> float:
    """Seconds: a provider may say nothing, and a client take nothing, for so long."""
    limits = settings.limits
    idle = max([limits.idle_seconds, *(row.idle_seconds for row in settings.providers if row.idle_seconds)])
    return idle + limits.send_stall_seconds + 5
