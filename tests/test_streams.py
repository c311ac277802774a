"""Whatever a provider does and whenever its reader leaves: one terminal event, always last, and one outcome counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from gateway import streams
from gateway.errors import GatewayError, InternalError, RateLimited, Truncated, UpstreamError, UpstreamTimeout
from gateway.events import (
    AudioDelta,
    AudioFormat,
    AudioStart,
    Failed,
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
from gateway.patience import Patience
from gateway.streams import EventStream, open_stream
from gateway.telemetry import Meter, tally

OUTCOMES = ("finished", "failed", "truncated", "cancelled")
BRIEF = 0.01  # seconds that a provider may be silent here


@dataclass(frozen=True)
class Do:
    """A step that is no event: `hang`, `swallow` (hang, and take no notice of being cancelled), `stop`."""

    what: str


STEPS = st.one_of(
    st.sampled_from(
        [
            TextDelta("a"),
            TextDelta(""),
            ReasoningDelta("r"),
            ReasoningDelta(""),
            ToolCallStart(0, "c", "f"),
            ToolCallStart(1, "d", "g"),
            ToolCallDelta(0, "{}"),
            ToolCallDelta(7, "{}"),
            AudioStart(AudioFormat()),
            AudioDelta(b"\0\0"),
        ]
    ),
    st.sampled_from([Finished(FinishReason.STOP), Finished(FinishReason.LENGTH, Usage(1, 2))]),
    st.sampled_from([Started("x", "m", 0), Failed(UpstreamError("its own")), None, "text"]),
    st.sampled_from(
        [
            UpstreamError("no"),
            RateLimited("wait", retry_after=0),
            RateLimited("wait long", retry_after=999),
            Truncated("cut"),
            RuntimeError("a fault"),
            asyncio.CancelledError(),
        ]
    ),
    st.sampled_from([Do("hang"), Do("swallow"), Do("stop")]),
)
CLOSING = st.sampled_from([None, RuntimeError("cannot close"), asyncio.CancelledError(), Do("hang")])
READERS = st.sampled_from(["reads on", "leaves", "is cancelled", "closes twice", "raises"])


class Leaving(Exception):
    """The reader's own fault."""


@dataclass
class Played:
    """What happened in one stream."""

    events: list[StreamEvent] = field(default_factory=list)
    attempts: int = 0
    open: int = 0
    read_on: bool = False
    refused: GatewayError | None = None


def provider(played: Played, scripts: list[list[Any]], closing: Any) -> Callable[[], AsyncGenerator[Any, None]]:
    """A source that plays one script per attempt, the last one again and again."""

    async def play() -> AsyncGenerator[Any, None]:
        script = scripts[min(played.attempts, len(scripts) - 1)]
        played.attempts += 1
        played.open += 1
        try:
            for step in script:
                if isinstance(step, BaseException):
                    raise step
                if step == Do("stop"):
                    return
                if isinstance(step, Do):
                    try:
                        await asyncio.Event().wait()
                    except asyncio.CancelledError:
                        if step.what != "swallow":
                            raise
                    continue
                await asyncio.sleep(0)
                yield step
        finally:
            played.open -= 1
            if isinstance(closing, BaseException):
                raise closing
            if closing is not None:
                await asyncio.Event().wait()

    return play


async def read(played: Played, stream: EventStream[Any], reader: str, events: int) -> None:
    async for event in stream:
        played.events.append(event)
        if len(played.events) == events:
            if reader == "leaves":
                return
            if reader == "raises":
                raise Leaving
            if reader == "is cancelled":
                task = asyncio.current_task()
                assert task is not None
                asyncio.get_running_loop().call_soon(task.cancel)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    played.read_on = True
    if reader == "closes twice":
        await stream.aclose()


async def run(scripts: list[list[Any]], closing: Any, reader: str, events: int, retries: int) -> Played:
    played = Played()
    meter = Meter("machine", "m", "p")
    patience = Patience(first_event=BRIEF, idle=BRIEF, retries=retries)

    async def whole() -> None:
        if reader == "is cancelled" and events == 0:
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().call_soon(task.cancel)
        source = provider(played, scripts, closing)
        async with open_stream(source, model="m", meter=meter, patience=patience) as stream:
            await read(played, stream, reader, events)

    task = asyncio.create_task(whole())
    done, _ = await asyncio.wait([task], timeout=5)
    assert done, "the stream hangs"
    try:
        await task
    except GatewayError as error:
        played.refused = error
    except (Leaving, asyncio.CancelledError):
        assert reader in ("raises", "is cancelled")
    return played


def counted() -> dict[str, float]:
    tally.write()
    labels = [{"wire": "machine", "provider": "p", "outcome": outcome} for outcome in OUTCOMES]
    return {of["outcome"]: REGISTRY.get_sample_value("polywire_streams_total", of) or 0 for of in labels}


def check_grammar(events: list[StreamEvent], *, whole: bool) -> None:
    """The grammar of gateway/events.py, told once more and differently."""
    assert [isinstance(event, Started) for event in events] == [True] + [False] * (len(events) - 1)
    terminal = [isinstance(event, Finished | Failed) for event in events]
    assert sum(terminal[:-1]) == 0
    assert terminal[-1] or not whole
    starts = [event.index for event in events if isinstance(event, ToolCallStart)]
    assert starts == list(range(len(starts)))
    for position, event in enumerate(events):
        before = events[:position]
        if isinstance(event, ToolCallDelta):
            assert any(isinstance(other, ToolCallStart) and other.index == event.index for other in before)
        if isinstance(event, AudioDelta):
            assert any(isinstance(other, AudioStart) for other in before)
        assert event not in (TextDelta(""), ReasoningDelta(""), AudioDelta(b""), None, "text")


@pytest.fixture(autouse=True)
def _brief_closing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "CLOSE_SECONDS", BRIEF)
    monkeypatch.setattr(streams.log, "disabled", True)


@settings(max_examples=400, deadline=None)
@given(
    scripts=st.lists(st.lists(STEPS, max_size=6), min_size=1, max_size=3),
    closing=CLOSING,
    reader=READERS,
    events=st.integers(0, 4),
    retries=st.integers(0, 2),
)
def test_every_stream_has_one_terminal_event_and_counts_one_outcome(
    scripts: list[list[Any]], closing: Any, reader: str, events: int, retries: int
) -> None:
    before = counted()
    played = asyncio.run(run(scripts, closing, reader, events, retries))
    after = counted()
    grown = [outcome for outcome in OUTCOMES if after[outcome] > before[outcome]]
    assert len(grown) == 1
    assert sum(after.values()) == sum(before.values()) + 1
    assert REGISTRY.get_sample_value("polywire_streams_open", {"wire": "machine"}) == 0
    assert played.open == 0
    assert played.attempts <= retries + 1
    if played.refused is not None:
        assert played.events == []
        assert grown[0] in ("failed", "truncated")
    if played.events:
        check_grammar(played.events, whole=played.read_on)
    if played.read_on:
        last = played.events[-1]
        truncated = isinstance(last, Failed) and isinstance(last.error, Truncated)
        failed = "truncated" if truncated else "failed"
        assert grown == ["finished" if isinstance(last, Finished) else failed]


async def failure(*steps: Any, closing: Any = None) -> GatewayError:
    """The error of a stream that says one word and then does `steps`."""
    played = await run([[TextDelta("a"), *steps]], closing, "reads on", 0, 0)
    assert played.events[1] == TextDelta("a")
    last = played.events[-1]
    assert isinstance(last, Failed)
    return last.error


async def test_a_silent_provider_is_a_timeout() -> None:
    assert isinstance(await failure(Do("hang")), UpstreamTimeout)


async def test_a_provider_that_takes_no_notice_of_its_timeout_is_one_all_the_same() -> None:
    assert isinstance(await failure(Do("swallow"), Do("stop")), UpstreamTimeout)


async def test_a_provider_that_stops_early_is_truncated() -> None:
    assert isinstance(await failure(Do("stop")), Truncated)


async def test_a_fault_is_told_without_its_text() -> None:
    error = await failure(RuntimeError("secret"))
    assert isinstance(error, InternalError)
    assert "secret" not in error.message


async def test_a_cancellation_from_within_the_provider_is_a_fault_of_it() -> None:
    assert isinstance(await failure(asyncio.CancelledError()), InternalError)


async def test_an_event_after_the_end_is_never_seen() -> None:
    played = await run([[TextDelta("a"), Finished(FinishReason.STOP), TextDelta("b")]], None, "reads on", 0, 0)
    assert played.events[1:] == [TextDelta("a"), Finished(FinishReason.STOP)]


async def test_a_retry_ends_with_the_first_event() -> None:
    scripts: list[list[Any]] = [[RateLimited("wait", retry_after=0)], [TextDelta("a"), RateLimited("", retry_after=0)]]
    played = await run(scripts, None, "reads on", 0, 2)
    assert played.attempts == 2
    assert isinstance(played.events[-1], Failed)


async def test_a_cancelled_reader_is_cancelled_and_counts_as_such() -> None:
    played = Played()
    meter = Meter("machine", "m", "p")

    async def whole() -> None:
        source = provider(played, [[TextDelta("a"), Do("hang")]], None)
        async with open_stream(source, model="m", meter=meter, patience=Patience()) as stream:
            await read(played, stream, "is cancelled", 2)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(whole())
    assert played.events[1:] == [TextDelta("a")]
    assert (played.open, meter.outcome) == (0, "cancelled")


async def test_the_source_is_closed_when_the_reader_leaves() -> None:
    played = Played()
    source = provider(played, [[TextDelta("a"), Do("hang")]], None)
    meter = Meter("machine", "m", "p")
    async with open_stream(source, model="m", meter=meter, patience=Patience()) as stream, aclosing(stream):
        assert played.open == 1
    assert played.open == 0
