"""Runs that belong to the service and not to a connection: create, get, list, cancel, follow, expire.

Every worker sees every prediction through the store; the worker that runs one holds a lease, and when the lease lapses
the others end its predictions as failed. A change of status is a compare-and-set, so there is one transition whoever
asks for it: a run's end is in the log before the status, and the status before the log's terminal event.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

from gateway.cancels import Cancels
from gateway.config import Kind, Limits
from gateway.errors import Conflict, GatewayError, InternalError, NotFound, RateLimited
from gateway.events import Failed, Finished, Started, StreamEvent
from gateway.leases import DIED, Leases
from gateway.ports import Store
from gateway.prediction import ID_LENGTH, PREDICTION, Prediction, channel_of, dump, load, log_of, random_id
from gateway.recording import MOVED, Recorder, encode_event, recorded, replay
from gateway.run import CANCELLED, LONGEST_RUN, Run, Stream
from gateway.tasks import Tasks

log = logging.getLogger("polywire")

RUN = "run"
RETRY_SECONDS = 0.5
CANCEL_SECONDS = 3.0
"""How long a cancel waits for the run to stop; a run that cannot is ended without it."""
STOP_SECONDS = 1.5
"""For the ends of all runs to be stored when the service is stopped."""
TELL_SECONDS = 0.5
"""For observers to hear of these ends after that."""
SETTLE_SECONDS = 120.0
"""How long the end of a run is offered to a store that does not answer; then it is left to a sweep."""

Observer = Callable[[Prediction], Coroutine[Any, Any, None]]


class Predictions:
    """All predictions, and the runs of this worker. Use it within `serving`."""

    def __init__(self, store: Store, limits: Limits) -> None:
        self._store = store
        self._limits = limits
        self._runs: dict[str, Run] = {}
        self._tasks, self._observing = Tasks(), Tasks()
        self._leases = Leases(store, RUN, abandoned=self._bury, lost=self._stop_lost)
        self._cancels = Cancels(store, channel_of(self._leases.worker), self._runs)
        self._refusal: GatewayError | None = None
        self._draining: asyncio.Task[None] | None = None
        self.observers: list[Observer] = []
        """Each is called with every prediction that begins here, and with those that another worker left behind."""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Run predictions until the block ends; then every run has its end and no task is left.

        While the store cannot be used predictions are refused, and everything else is served.
        """
        try:
            await self._leases.sweep()
        except GatewayError as error:
            log.error("there are no predictions now: %s", error.message)
        self._leases.start(self._tasks)
        try:
            yield
        finally:
            await self.drain()
            await self._observing.wait(TELL_SECONDS)
            await self._observing.aclose()
            await self._tasks.aclose()
            await self._cancels.aclose()
            await self._leases.aclose()

    def drain(self) -> asyncio.Task[None]:
        """Take no more predictions and end those that run, so that their readers get a last event."""
        if self._draining is None:
            self._draining = self._tasks.start(self._drain())
        return self._draining

    async def _drain(self) -> None:
        self._refusal = GatewayError(
            "The service is being stopped.", status=503, code="service_stopped", retryable=True
        )
        stopped = GatewayError(
            "The service was stopped while this prediction ran; create it again.", status=503, code="service_stopped"
        )
        runs = list(self._runs.values())
        for run in runs:
            run.stop(Failed(stopped))
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                for run in runs:
                    await run.done.wait()

    async def create(
        self,
        stream: Stream,
        *,
        owner: str,
        model: str,
        kind: Kind,
        input: Mapping[str, Any],
        notes: Mapping[str, Any],
        deadline: float | None = None,
    ) -> Prediction:
        """Begin a run; what is returned has not started yet. Raises RateLimited when all streams are in use."""
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)
        if len(self._runs) >= self._limits.streams:
            raise RateLimited(f"All {self._limits.streams} streams are in use; try again in a moment.", retry_after=1)
        prediction = Prediction(
            id=random_id(),
            secret=random_id(),
            owner=owner,
            worker=self._leases.worker,
            model=model,
            kind=kind,
            created_at=time.time(),
            input=input,
            notes=notes,
            deadline=deadline,
        )
        run = Run(prediction, stream, Recorder(self._store, log_of(prediction.id), after=1))
        self._runs[prediction.id] = run
        # A caller that leaves now still leaves a whole prediction behind.
        await asyncio.shield(self._tasks.start(self._publish(run)))
        return prediction

    async def get(self, id: str, owner: str) -> Prediction:
        """One prediction of `owner`. Raises NotFound for another's, an expired and an unknown one alike."""
        document = await self._store.get(PREDICTION, id)
        if document is None or document.owner != owner:
            raise NotFound("There is no such prediction; predictions are forgotten some time after their end.")
        return load(document.value)

    async def with_token(self, token: str) -> Prediction | None:
        """The prediction that the stream capability `token` opens."""
        document = await self._store.get(PREDICTION, token[:ID_LENGTH])
        if document is None or not (prediction := load(document.value)).opened_by(token):
            return None
        return prediction

    async def list(self, owner: str, *, limit: int, before: str | None = None) -> Sequence[Prediction]:
        """The newest predictions of `owner` first, older than the prediction `before` if given."""
        return [load(d.value) for d in await self._store.list(PREDICTION, owner=owner, limit=limit, before=before)]

    async def cancel(self, id: str, owner: str) -> Prediction:
        """Stop a run and give the prediction as it then is; one that is over stays as it was. Raises NotFound."""
        prediction = await self.get(id, owner)
        if not prediction.over:
            if (run := self._runs.get(id)) is not None:
                run.stop()
            else:
                await self._store.signal(channel_of(prediction.worker), id.encode())
            if not await self.ended(id, CANCEL_SECONDS):
                await self._settle(id, CANCELLED)
        return await self.get(id, owner)

    async def ended(self, id: str, seconds: float) -> bool:
        """Whether the prediction ended within `seconds`, waiting for it."""
        with suppress(TimeoutError, NotFound):
            async with asyncio.timeout(seconds):
                if (run := self._runs.get(id)) is not None:
                    await run.done.wait()
                else:
                    async with aclosing(self._store.follow(log_of(id))) as entries:
                        async for _ in entries:
                            pass
                return True
        return False

    @asynccontextmanager
    async def follow(self, prediction: Prediction) -> AsyncIterator[AsyncIterator[StreamEvent]]:
        """The prediction's whole stream from its first event to its terminal one, however late one comes."""

        async with aclosing(replay(self._store, log_of(prediction.id))) as recording:
            yield recording

    async def recorded(self, prediction: Prediction) -> Sequence[StreamEvent]:
        """What its stream has brought so far."""
        return await recorded(self._store, log_of(prediction.id))

    async def _publish(self, run: Run) -> None:
        prediction = run.prediction
        started = Started(prediction.id, prediction.model, int(prediction.created_at))
        # A recording always has a first event, so that a reader can tell a lost one from one that has not begun.
        ttl = LONGEST_RUN + self._limits.prediction_ttl_seconds
        try:
            await asyncio.gather(
                self._cancels.heard(),
                self._leases.hold(prediction.id),
                self._store.append(log_of(prediction.id), [encode_event(started)], after=0, ttl=ttl),
                self._store.put(PREDICTION, prediction.id, dump(prediction.started()), owner=prediction.owner),
            )
        except GatewayError:
            del self._runs[prediction.id]
            self._leases.drop(prediction.id)
            self._cancels.rest()
            raise
        self._tasks.start(self._run(run))
        self._observe(prediction)

    async def _run(self, run: Run) -> None:
        id = run.prediction.id
        try:
            terminal = await run.play()
            try:
                await run.recorder.flush()
            except GatewayError as error:
                terminal = Failed(error)
            await self._settle_soon(id, terminal, run.recorder)
        finally:
            del self._runs[id]
            self._leases.drop(id)
            run.done.set()
            self._cancels.rest()

    async def _settle_soon(self, id: str, terminal: Finished | Failed, recorder: Recorder) -> None:
        """Settle as soon as the store answers. Raises GatewayError when it stays away."""
        give_up = time.monotonic() + SETTLE_SECONDS
        while True:
            try:
                await self._settle(id, terminal, recorder)
            except GatewayError as error:
                if not error.retryable or time.monotonic() > give_up:
                    raise
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    async def _settle(
        self, id: str, terminal: Finished | Failed, recorder: Recorder | None = None
    ) -> Prediction | None:
        """Store the end of a prediction; one that has ended already keeps its own. None if this changed nothing."""
        ended = await self._transition(id, terminal)
        if ended is None:
            document = await self._store.get(PREDICTION, id)
            terminal = load(document.value).terminal if document is not None else terminal
        ttl = self._limits.prediction_ttl_seconds
        try:
            await (recorder or Recorder(self._store, log_of(id))).close(terminal, ttl=ttl)
        except Conflict as error:
            if error.code == MOVED:
                with suppress(Conflict):
                    failed = terminal if isinstance(terminal, Failed) else Failed(error)
                    await Recorder(self._store, log_of(id)).close(failed, ttl=ttl)
        await self._leases.release(id)
        return ended

    async def _transition(self, id: str, terminal: Finished | Failed) -> Prediction | None:
        while (document := await self._store.get(PREDICTION, id)) is not None:
            prediction = load(document.value)
            if prediction.over:
                break
            ended = prediction.ended(terminal)
            ttl = self._limits.prediction_ttl_seconds
            if await self._store.replace(PREDICTION, id, dump(ended), version=document.version, ttl=ttl):
                return ended
        return None

    def _observe(self, prediction: Prediction) -> None:
        for observer in self.observers:
            self._observing.start(observer(prediction))

    async def _bury(self, id: str) -> None:
        """End a run whose worker is gone."""
        error = InternalError("The worker that ran this prediction died or lost the store; create it again.", code=DIED)
        if (ended := await self._settle(id, Failed(error))) is not None:
            self._observe(ended)

    def _stop_lost(self, id: str) -> None:
        """Another worker has ended this run, or the store has forgotten it."""
        if (run := self._runs.get(id)) is not None:
            run.stop(Failed(InternalError("The store has lost this prediction; create it again.", code="store_lost")))
