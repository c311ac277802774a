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
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from typing import Any

from gateway.config import Kind, Limits
from gateway.errors import Conflict, GatewayError, InternalError, NotFound, RateLimited
from gateway.events import Failed, Finished, Started, StreamEvent
from gateway.ports import Document, Store
from gateway.prediction import ID_LENGTH, Prediction, dump, load, random_id
from gateway.recording import Recorder, recorded, replay
from gateway.run import CANCELLED, Run, Stream
from gateway.tasks import Tasks

log = logging.getLogger("polywire")

PREDICTION, RUN, WORKER = "prediction", "run", "worker"
LEASE_SECONDS = 5.0
BEAT_SECONDS = 1.0
SWEEP_SECONDS = 1.5
"""A dead worker's predictions end at the latest after the lease and one sweep."""
CANCEL_SECONDS = 3.0
"""How long a cancel waits for the run to stop; a run that cannot is ended without it."""
STOP_SECONDS = 2.0
SWEPT_AT_ONCE = 500

Observer = Callable[[Prediction], Coroutine[Any, Any, None]]


class Predictions:
    """All predictions, and the runs of this worker. Use it within `serving`."""

    def __init__(self, store: Store, limits: Limits) -> None:
        self._store = store
        self._limits = limits
        self._worker = random_id()
        self._runs: dict[str, Run] = {}
        self._tasks, self._observing = Tasks(), Tasks()
        self._refusal: GatewayError | None = None
        self._leased_until = 0.0
        self.observers: list[Observer] = []
        """Each is called with every prediction that begins here, and with those that another worker left behind."""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Run predictions until the block ends; then every run has its end and no task is left.

        Without a store that can be used there are no predictions, and everything else is served.
        """
        async with AsyncExitStack() as stack:
            try:
                asked = await stack.enter_async_context(self._store.signals(f"{WORKER}:{self._worker}"))
                await self._sweep()
            except GatewayError as error:
                log.error("there are no predictions: %s", error.message)
                self._refusal = error
                yield
                return
            self._tasks.start(self._obey(asked))
            self._tasks.start(self._repeat(BEAT_SECONDS, self._beat))
            self._tasks.start(self._repeat(SWEEP_SECONDS, self._sweep))
            try:
                yield
            finally:
                await self.drain()
                await self._observing.wait(STOP_SECONDS)
                await self._observing.aclose()
                await self._tasks.aclose()
                with suppress(GatewayError):
                    await self._store.delete(WORKER, self._worker)

    def drain_soon(self) -> None:
        """Begin to drain while others still read."""
        self._tasks.start(self.drain())

    async def drain(self) -> None:
        """Take no more predictions and end those that run, so that their readers get a last event."""
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
            worker=self._worker,
            model=model,
            kind=kind,
            created_at=time.time(),
            input=input,
            notes=notes,
            deadline=deadline,
        )
        run = Run(prediction, stream, Recorder(self._store, _log_of(prediction.id)))
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
                await self._store.signal(f"{WORKER}:{prediction.worker}", id.encode())
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
                    async with aclosing(self._store.follow(_log_of(id))) as entries:
                        async for _ in entries:
                            pass
                return True
        return False

    @asynccontextmanager
    async def follow(self, prediction: Prediction) -> AsyncIterator[AsyncIterator[StreamEvent]]:
        """The prediction's whole stream from its first event to its terminal one, however late one comes."""

        async def events() -> AsyncIterator[StreamEvent]:
            yield Started(prediction.id, prediction.model, int(prediction.created_at))
            async for event in recording:
                yield event

        async with aclosing(replay(self._store, _log_of(prediction.id))) as recording:
            yield events()

    async def recorded(self, prediction: Prediction) -> Sequence[StreamEvent]:
        """What its stream has brought so far."""
        return await recorded(self._store, _log_of(prediction.id))

    async def _publish(self, run: Run) -> None:
        prediction = run.prediction
        try:
            await asyncio.gather(
                self._lease(),
                self._store.put(RUN, prediction.id, self._worker.encode(), owner=""),
                self._store.put(PREDICTION, prediction.id, dump(prediction.started()), owner=prediction.owner),
            )
        except GatewayError:
            del self._runs[prediction.id]
            raise
        self._tasks.start(self._run(run))
        self._observe(prediction)

    async def _run(self, run: Run) -> None:
        id = run.prediction.id
        try:
            terminal = await run.play()
            with suppress(Conflict):
                await run.recorder.flush()
            await self._settle(id, terminal)
        finally:
            del self._runs[id]
            run.done.set()

    async def _settle(self, id: str, terminal: Finished | Failed) -> Prediction | None:
        """Store the end of a prediction; one that has ended already keeps its own. None if this changed nothing."""
        ended = await self._transition(id, terminal)
        if ended is None:
            document = await self._store.get(PREDICTION, id)
            terminal = load(document.value).terminal if document is not None else terminal
        with suppress(Conflict):
            await Recorder(self._store, _log_of(id)).close(terminal, ttl=self._limits.prediction_ttl_seconds)
        await self._store.delete(RUN, id)
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

    async def _obey(self, asked: AsyncIterator[bytes]) -> None:
        """Stop the runs that other workers' clients cancel."""
        async for id in asked:
            if (run := self._runs.get(id.decode())) is not None:
                run.stop()

    async def _beat(self) -> None:
        if self._runs:
            self._leased_until = time.monotonic() + LEASE_SECONDS / 2
            await self._store.put(WORKER, self._worker, b"", owner="", ttl=LEASE_SECONDS)

    async def _lease(self) -> None:
        """Make sure that the others see this worker alive."""
        if time.monotonic() > self._leased_until:
            await self._beat()

    async def _sweep(self) -> None:
        """End what dead workers left behind."""
        documents: tuple[Document, ...] = ()
        oldest: str | None = None
        while page := await self._store.list(RUN, owner=None, limit=SWEPT_AT_ONCE, before=oldest):
            documents, oldest = (*documents, *page), page[-1].key
        for document in documents:
            if await self._abandoned(document):
                error = InternalError("The worker that ran this prediction died; create it again.", code="worker_died")
                if (ended := await self._settle(document.key, Failed(error))) is not None:
                    self._observe(ended)

    async def _abandoned(self, document: Document) -> bool:
        worker = document.value.decode()
        if worker == self._worker:
            return document.key not in self._runs
        return await self._store.get(WORKER, worker) is None

    async def _repeat(self, seconds: float, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do `work` every so often; a store that does not answer is tried again."""
        while True:
            await asyncio.sleep(seconds)
            try:
                await work()
            except GatewayError as error:
                log.error("predictions: %s", error.message)


def _log_of(id: str) -> str:
    return f"{PREDICTION}:{id}"
