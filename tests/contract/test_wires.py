"""Every wire renders every canned stream: the whole text, exactly one end, and never success after a failure."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import GatewayError, Truncated, UpstreamError
from gateway.events import (
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
from tests.contract.wire_clients import Clients, clients
from tests.contract.wire_entry import ERROR, Answer, WireEntry
from tests.contract.wires import ENTRIES
from tests.running import Service

every = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
pure = pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry.encode], ids=lambda entry: entry.name)


def encoded(entry: WireEntry, events: list[StreamEvent]) -> Answer:
    """What a client reads of `events`."""
    assert entry.encode is not None
    return entry.read(entry.encode(events))


@dataclass(frozen=True, slots=True)
class Canned:
    """What a script of tests/data/script.yaml says; `error` is a part of the sentence that a failure is told by."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    usage: tuple[int, int] = (0, 0)
    reason: FinishReason = FinishReason.STOP
    error: str | None = None


CANNED = {
    "hello": Canned("Hello 안녕하세요 👋🏽", usage=(3, 3)),
    "reasoning": Canned("42", "Let me think.", usage=(1, 5)),
    "tools": Canned(
        calls=(("get_weather", '{"city": "Seoul"}'), ("get_time", "{}")), usage=(9, 8), reason=FinishReason.TOOL_CALLS
    ),
    "empty": Canned(usage=(1, 0)),
    "length": Canned("cut", reason=FinishReason.LENGTH),
    "fails-first": Canned(error="Slow down."),
    "fails-midway": Canned("Hello", error="It broke."),
    "faults": Canned("Hello", error="the log has the cause"),
    "truncated": Canned("Hello", error="the answer is incomplete"),
}


@pytest.fixture
async def asking(service: Service) -> AsyncIterator[Clients]:
    async with clients(service) as opened:
        yield opened


def check(entry: WireEntry, answer: Answer, canned: Canned) -> None:
    assert answer.text == entry.carried(canned.text)
    assert answer.reasoning == ("" if "reasoning" in entry.cannot else canned.reasoning)
    if canned.error is not None:
        assert answer.ends == [ERROR]
        assert answer.error is not None
        return
    assert answer.ends == [entry.reason(canned.reason)]
    assert [tuple(call) for call in answer.calls] == ([] if "tools" in entry.cannot else list(canned.calls))
    if "usage" not in entry.cannot:
        assert (answer.usage or (0, 0)) == canned.usage


@every
@pytest.mark.parametrize("script", CANNED)
async def test_every_canned_stream_arrives(asking: Clients, entry: WireEntry, script: str) -> None:
    canned = CANNED[script]
    raw = await entry.ask(asking, script, "hi")
    answer = entry.read(raw)
    check(entry, answer, canned)
    # The raw `/generate` breaks its body, which says no more.
    if answer.error:
        assert canned.error is not None
        assert canned.error in answer.error
    assert b"secret-detail-of-a-bug" not in raw.body


def test_every_wire_but_the_raw_one_says_what_failed() -> None:
    silent = [entry.name for entry in ENTRIES if entry.encode and not encoded(entry, [*FAILED]).error]
    assert silent == ["generate"]


STARTED = Started("1", "m", 1)
FAILED = (STARTED, TextDelta("Hello"), Failed(UpstreamError("It broke.")))
TEXTS = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from("\r\n\u2028\x85 :{}d"), min_size=1, max_size=6
)


@st.composite
def streams(draw: st.DrawFn) -> list[StreamEvent]:
    """A stream of the grammar: pieces of text and thinking between whole tool calls, and one end."""
    events: list[StreamEvent] = [STARTED]
    calls = 0
    for kind in draw(st.lists(st.sampled_from(["text", "text", "thinking", "call"]), max_size=8)):
        if kind == "text":
            events.append(TextDelta(draw(TEXTS)))
        elif kind == "thinking":
            events.append(ReasoningDelta(draw(TEXTS)))
        else:
            events += [
                ToolCallStart(calls, f"call_{calls}", "f"),
                *(ToolCallDelta(calls, part) for part in ('{"a":', "1}")),
            ]
            calls += 1
    failures: list[GatewayError] = [UpstreamError("It broke."), Truncated("It ended.\nEarly."), GatewayError("\u2028")]
    ends = [Finished(reason, Usage(2, 3)) for reason in FinishReason]
    last: list[StreamEvent] = [*ends, *map(Failed, failures)]
    events.append(draw(st.sampled_from(last)))
    return events


@pure
def test_a_line_end_cut_in_two_is_one_line_end(entry: WireEntry) -> None:
    pieces = ("a\r", "\n", "\r", "\n\n", "b\r", "\r\n", "\r")
    texts: list[StreamEvent] = [TextDelta(piece) for piece in pieces]
    answer = encoded(entry, [STARTED, *texts, Finished(FinishReason.STOP)])
    assert answer.text == entry.carried("".join(pieces))


@pure
@settings(max_examples=60, deadline=None)
@given(events=streams())
def test_every_stream_of_the_grammar_is_read_back(entry: WireEntry, events: list[StreamEvent]) -> None:
    answer = encoded(entry, events)
    said = "".join(event.text for event in events if isinstance(event, TextDelta))
    thought = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    calls = [["f", '{"a":1}'] for event in events if isinstance(event, ToolCallStart)]
    assert answer.text == entry.carried(said)
    assert answer.reasoning == ("" if "reasoning" in entry.cannot else thought)
    last = events[-1]
    if isinstance(last, Failed):
        assert answer.ends == [ERROR]
        return
    assert isinstance(last, Finished)
    assert len(answer.ends) == 1
    assert answer.ends[0] != ERROR
    if last.reason is not FinishReason.CANCELLED:
        assert answer.calls == ([] if "tools" in entry.cannot else calls)


@pure
def test_a_cancelled_answer_is_never_taken_for_a_finished_one(entry: WireEntry) -> None:
    answer = encoded(entry, [STARTED, TextDelta("Hello"), Finished(FinishReason.CANCELLED)])
    assert answer.text == "Hello"
    if "reason" not in entry.cannot or entry.reasons:
        assert answer.ends == [entry.reasons.get(FinishReason.CANCELLED, "cancelled")]
