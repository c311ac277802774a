"""Runs that belong to the service: one transition each, whoever asks, whichever worker answers, whoever dies."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from adapters.scripted import Silence
from gateway import cancels, leases
from gateway.errors import GatewayError, NotFound, RateLimited, UpstreamError
from gateway.events import (
    Failed,
    Finished,
    FinishReason,
    Started,
    StreamEvent,
    TextDelta,
    Usage,
)
from gateway.prediction import Prediction, Status
from gateway.request import ChatRequest, Role, text_message
from tests.predictions.conftest import OpenWorker, Worker, eventually

DONE = Finished(FinishReason.STOP, Usage(input_tokens=1, output_tokens=2))
SCRIPTS: dict[str, Any] = {
    "hello": [TextDelta("Hello"), TextDelta(" 안녕"), DONE],
    "hangs": [TextDelta("Hello"), Silence.FOR_EVER],
    "silent": [Silence.FOR_EVER],
    "breaks": [TextDelta("Hello"), UpstreamError("It broke.")],
    "faults": [TextDelta("Hello"), RuntimeError("secret")],
    "many": [*(TextDelta(f"{n} ") for n in range(2000)), DONE],
}


async def create(worker: Worker, model: str, owner: str = "me", **more: Any) -> Prediction:
    request = ChatRequest(model, (text_message(Role.USER, "hi"),))
    return await worker.predictions.create(
        worker.gateway.chat(request, wire="replicate"),
        owner=owner, model=model, kind="chat", input={"prompt": "hi"}, notes={}, **more,
    )  # fmt: skip


async def follow(worker: Worker, prediction: Prediction) -> list[StreamEvent]:
    async with asyncio.timeout(10), worker.predictions.follow(prediction) as events:
        return [event async for event in events]


def text(events: list[StreamEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def at_work(worker: Worker) -> bool:
    return worker.provider.opened > worker.provider.closed


async def begun(worker: Worker, prediction: Prediction) -> None:
    """Wait for the first text."""
    async with asyncio.timeout(10), worker.predictions.follow(prediction) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                return


async def test_a_run_is_recorded_and_read_by_any_number_of_readers_on_any_worker(workers: OpenWorker) -> None:
    one, two = await workers(SCRIPTS), await workers(SCRIPTS)
    prediction = await create(one, "many")
    assert prediction.status is Status.STARTING
    for events in await asyncio.gather(*(follow(worker, prediction) for worker in (one, two, one, two))):
        assert isinstance(events[0], Started)
        assert text(events) == "".join(f"{n} " for n in range(2000))
        assert events[-1] == DONE
    assert one.provider.opened == 1
    ended = await two.predictions.get(prediction.id, "me")
    assert (ended.status, ended.usage, ended.error) == (Status.SUCCEEDED, DONE.usage, None)
    assert ended.started_at is not None
    assert ended.completed_at is not None
    assert ended.completed_at >= ended.started_at >= ended.created_at


async def test_the_status_is_final_before_the_last_event_can_be_read(workers: OpenWorker) -> None:
    one, two = await workers(SCRIPTS), await workers(SCRIPTS)
    prediction = await create(one, "hello")
    await follow(two, prediction)
    assert (await two.predictions.get(prediction.id, "me")).over


async def test_ten_cancels_at_once_make_one_transition(workers: OpenWorker) -> None:
    """Case X4."""
    one, two = await workers(SCRIPTS), await workers(SCRIPTS)
    prediction = await create(one, "hangs")
    await begun(one, prediction)
    began = time.monotonic()
    answers = await asyncio.gather(*((one, two)[n % 2].predictions.cancel(prediction.id, "me") for n in range(10)))
    assert time.monotonic() - began < 1
    assert {answer.status for answer in answers} == {Status.CANCELLED}
    assert len({answer.completed_at for answer in answers}) == 1
    events = await follow(two, prediction)
    assert events[1:] == [TextDelta("Hello"), Finished(FinishReason.CANCELLED)]
    assert one.provider.closed == 1
    assert await one.predictions.cancel(prediction.id, "me") == answers[0]
    with pytest.raises(NotFound):
        await one.predictions.cancel("unknown", "me")


async def test_a_cancel_reaches_the_other_worker_within_a_tenth_of_a_second(workers: OpenWorker) -> None:
    one, two = await workers(SCRIPTS), await workers(SCRIPTS)
    waits = []
    for _ in range(3):
        prediction = await create(one, "silent")
        await eventually(partial(at_work, one))
        began = time.monotonic()
        await two.predictions.cancel(prediction.id, "me")
        waits.append(time.monotonic() - began)
    assert sorted(waits)[0] < 0.1
    assert one.provider.opened == one.provider.closed == 3


async def test_a_worker_that_rested_hears_of_cancels_again(
    workers: OpenWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancels, "REST_SECONDS", 0.0)
    one, two = await workers(SCRIPTS), await workers(SCRIPTS)
    for _ in range(3):
        prediction = await create(one, "silent")
        assert (await two.predictions.cancel(prediction.id, "me")).status is Status.CANCELLED
        await eventually(partial(all_rest, one))


async def all_rest(worker: Worker) -> bool:
    """Whether nothing of predictions is at work, and nothing watches the store for it."""
    watching = [thread.ident for thread in threading.enumerate() if thread.name == "polywire-store-watch"]
    clocks = [time.pthread_getcpuclockid(thread) for thread in watching if thread is not None]
    before = [time.clock_gettime_ns(clock) for clock in clocks]
    await asyncio.sleep(0.2)
    return not await at_work(worker) and before == [time.clock_gettime_ns(clock) for clock in clocks]


async def test_a_cancel_before_the_work_begins_opens_nothing(workers: OpenWorker) -> None:
    worker = await workers(SCRIPTS)
    prediction = await create(worker, "hello", deadline=time.time() - 1)
    assert (await follow(worker, prediction))[1:] == [Finished(FinishReason.CANCELLED)]
    assert worker.provider.opened == 0


async def test_a_deadline_cancels(workers: OpenWorker) -> None:
    worker = await workers(SCRIPTS)
    prediction = await create(worker, "hangs", deadline=time.time() + 0.1)
    assert (await follow(worker, prediction))[-1] == Finished(FinishReason.CANCELLED)
    assert (await worker.predictions.get(prediction.id, "me")).status is Status.CANCELLED


async def test_a_failure_midway_keeps_the_text_and_says_why(workers: OpenWorker) -> None:
    """Case R1."""
    worker = await workers(SCRIPTS)
    prediction = await create(worker, "breaks")
    events = await follow(worker, prediction)
    assert text(events) == "Hello"
    assert isinstance(events[-1], Failed)
    assert events[-1].error.message == "It broke."
    failed = await worker.predictions.get(prediction.id, "me")
    assert (failed.status, failed.error) == (Status.FAILED, "It broke.")


async def test_a_fault_of_ours_is_told_without_its_detail(workers: OpenWorker) -> None:
    worker = await workers(SCRIPTS)
    prediction = await create(worker, "faults")
    await follow(worker, prediction)
    failed = await worker.predictions.get(prediction.id, "me")
    assert failed.status is Status.FAILED
    assert "secret" not in (failed.error or "")


async def test_a_prediction_is_its_owners_alone(workers: OpenWorker) -> None:
    worker = await workers(SCRIPTS)
    prediction = await create(worker, "hangs", owner="me")
    with pytest.raises(NotFound):
        await worker.predictions.get(prediction.id, "you")
    with pytest.raises(NotFound):
        await worker.predictions.cancel(prediction.id, "you")
    assert await worker.predictions.list("you", limit=10) == []
    assert [found.id for found in await worker.predictions.list("me", limit=10)] == [prediction.id]


async def test_only_the_whole_token_opens_a_stream(workers: OpenWorker) -> None:
    worker = await workers(SCRIPTS)
    prediction = await create(worker, "hello")
    assert await worker.predictions.with_token(prediction.token) is not None
    assert await worker.predictions.with_token(prediction.id) is None
    assert await worker.predictions.with_token(prediction.id + "a" * 26) is None
    assert await worker.predictions.with_token("안녕") is None


async def test_a_prediction_is_forgotten_some_time_after_its_end(workers: OpenWorker) -> None:
    worker = await workers(SCRIPTS, prediction_ttl_seconds=0.4)
    prediction = await create(worker, "hello")
    running = await create(worker, "hangs")
    await follow(worker, prediction)

    async def forgotten() -> bool:
        log = await worker.store.read(f"prediction:{prediction.id}")
        return log.last == 0 and await worker.predictions.with_token(prediction.token) is None

    await eventually(forgotten)
    assert not (await worker.predictions.get(running.id, "me")).over


async def test_a_refused_create_leaves_nothing(workers: OpenWorker) -> None:
    worker = await workers(SCRIPTS, streams=1)
    first = await create(worker, "hangs")
    with pytest.raises(RateLimited) as refused:
        await create(worker, "hello")
    assert refused.value.retry_after == 1
    assert [found.id for found in await worker.predictions.list("me", limit=10)] == [first.id]


async def test_a_creator_that_leaves_still_leaves_a_whole_prediction(workers: OpenWorker) -> None:
    worker = await workers(SCRIPTS)
    creating = asyncio.create_task(create(worker, "hello"))
    await asyncio.sleep(0)
    creating.cancel()

    async def over() -> bool:
        return any(found.over for found in await worker.predictions.list("me", limit=10))

    await eventually(over)
    assert worker.provider.closed == 1


async def test_what_a_dead_worker_left_behind_fails_and_its_readers_are_told(
    workers: OpenWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.3)
    monkeypatch.setattr(leases, "SWEEP_SECONDS", 0.1)
    monkeypatch.setattr(leases, "BEAT_SECONDS", 60)
    dying, living = await workers(SCRIPTS), await workers(SCRIPTS)
    told = asyncio.Queue[Prediction]()
    living.predictions.observers.append(told.put)
    prediction = await create(dying, "hangs")
    events = await follow(living, prediction)
    assert text(events) == "Hello"
    assert isinstance(events[-1], Failed)
    assert "died" in events[-1].error.message
    assert (await living.predictions.get(prediction.id, "me")).status is Status.FAILED
    async with asyncio.timeout(5):
        assert (await told.get()).status is Status.FAILED


async def test_a_beating_worker_is_not_taken_for_dead(workers: OpenWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.6)
    monkeypatch.setattr(leases, "SWEEP_SECONDS", 0.05)
    monkeypatch.setattr(leases, "BEAT_SECONDS", 0.05)
    one, two = await workers(SCRIPTS), await workers(SCRIPTS)
    prediction = await create(one, "hangs")
    assert await two.predictions.ended(prediction.id, 1.0) is False
    assert not (await two.predictions.get(prediction.id, "me")).over


async def test_draining_ends_every_run_with_an_honest_error(workers: OpenWorker) -> None:
    one, two = await workers(SCRIPTS), await workers(SCRIPTS)
    prediction = await create(one, "hangs")
    reading = asyncio.create_task(follow(two, prediction))
    await begun(two, prediction)
    await one.predictions.drain()
    events = await reading
    assert isinstance(events[-1], Failed)
    assert "stopped" in events[-1].error.message
    with pytest.raises(GatewayError) as refused:
        await create(one, "hello")
    assert refused.value.status == 503


async def test_listing_pages_from_the_newest(workers: OpenWorker) -> None:
    worker = await workers(SCRIPTS)
    made = [(await create(worker, "hello")).id for _ in range(5)]
    first = await worker.predictions.list("me", limit=3)
    second = await worker.predictions.list("me", limit=3, before=first[-1].id)
    assert [found.id for found in (*first, *second)] == made[::-1]


async def test_without_a_store_there_are_no_predictions_and_nothing_else_is_lost(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    worker = Worker(f"sqlite:///{tmp_path}/file/polywire.db", SCRIPTS)
    async with worker.predictions.serving():
        with pytest.raises(GatewayError, match="POLYWIRE_STORE") as refused:
            await create(worker, "hello")
        request = ChatRequest("hello", (text_message(Role.USER, "hi"),))
        async with worker.gateway.chat(request, wire="openai") as events:
            assert [event async for event in events][-1] == DONE
    assert refused.value.status == 503
    await worker.store.aclose()
