"""What is written down comes back as it was, soon, and in few writes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from gateway import recording
from gateway.errors import Conflict, PayloadTooLarge
from gateway.events import (
    AudioDelta,
    AudioFormat,
    AudioStart,
    Encoding,
    Finished,
    FinishReason,
    ReasoningDelta,
    Started,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from gateway.recording import Recorder, decode_event, encode_event, replay
from stores.sqlite import SqliteStore

EVENTS: Sequence[StreamEvent] = (
    Started("id", "model", 5),
    TextDelta("안녕 👋🏽\r\n\u2028"),
    TextDelta("\ud83d"),
    ReasoningDelta("hm", "signature"),
    ToolCallStart(0, "call", "name"),
    ToolCallDelta(0, '{"a": 1}'),
    AudioStart(AudioFormat(Encoding.PCM, 16_000, 2)),
    AudioDelta(bytes(range(256))),
    Finished(FinishReason.LENGTH, Usage(1, 2, 3, 4, 5)),
    Finished(FinishReason.STOP),
)
DONE = Finished(FinishReason.STOP)


class CountingStore(SqliteStore):
    """Counts the appends."""

    appends = 0

    async def append(
        self,
        log: str,
        entries: Sequence[bytes],
        *,
        after: int | None = None,
        last: bool = False,
        ttl: float | None = None,
    ) -> int:
        self.appends += 1
        return await super().append(log, entries, after=after, last=last, ttl=ttl)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[CountingStore]:
    store = CountingStore(tmp_path / "polywire.db")
    yield store
    await store.aclose()


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_comes_back_as_it_was(event: StreamEvent) -> None:
    assert decode_event(encode_event(event)) == event


async def test_a_fast_stream_takes_few_writes_and_loses_nothing(store: CountingStore) -> None:
    recorder = Recorder(store, "log")
    for number in range(5000):
        await recorder.add(TextDelta(f"{number} "))
        if number % 10 == 0:
            await asyncio.sleep(0)
    await recorder.flush()
    await recorder.close(DONE, ttl=60)
    events = [event async for event in replay(store, "log")]
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "".join(f"{n} " for n in range(5000))
    assert events[-1] == DONE
    assert store.appends < 500


async def test_a_slow_stream_reaches_its_readers_in_a_few_milliseconds(store: CountingStore) -> None:
    recorder = Recorder(store, "log")
    waits = []
    reading = replay(store, "log")
    for _ in range(20):
        began = time.monotonic()
        await recorder.add(TextDelta("x"))
        await anext(reading)
        waits.append(time.monotonic() - began)
        await asyncio.sleep(0.01)
    await reading.aclose()
    await recorder.flush()
    assert sorted(waits)[10] < 0.02


async def test_a_closed_recording_takes_nothing_more(store: CountingStore) -> None:
    await Recorder(store, "log").close(DONE, ttl=60)
    late = Recorder(store, "log")
    await late.add(TextDelta("late"))
    with pytest.raises(Conflict):
        await late.flush()


async def test_an_answer_without_an_end_is_bounded(store: CountingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MOST_BYTES", 1000)
    recorder = Recorder(store, "log")
    for _ in range(2):
        await recorder.add(TextDelta("x" * 400))
    with pytest.raises(PayloadTooLarge):
        await recorder.add(TextDelta("x" * 400))
    await recorder.flush()
