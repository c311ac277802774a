"""The bytes of a stream, through three decoders: the Python client's own, ours, and a plain one after the standard."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from replicate.stream import EventSource

from gateway.errors import UpstreamError
from gateway.events import (
    Failed,
    Finished,
    FinishReason,
    ReasoningDelta,
    Started,
    StreamEvent,
    TextDelta,
)
from gateway.sse import SseDecoder
from tests.predictions.events import joined, plain
from wires.replicate.encoder import EventEncoder

CREATED = 1795984714
RARE = "\v\f\x1c\x1d\x1e\x85\u2028\u2029"
DONE = Finished(FinishReason.STOP)


def encode(*events: StreamEvent, after: int = -1) -> bytes:
    encoder = EventEncoder(CREATED, after)
    return b"".join(frame for event in events for frame in encoder.encode(event))


def texts(*pieces: str) -> bytes:
    return encode(*(TextDelta(piece) for piece in pieces), DONE)


def ours(body: bytes) -> list[tuple[str, str, str]]:
    decoder = SseDecoder()
    events = [event for n in range(len(body)) for event in decoder.feed(body[n : n + 1])]
    return [(event.event, event.text, event.id or "") for event in events]


def python_client(body: bytes) -> list[tuple[str, str, str]]:
    """replicate 1.0.7's decoder behind httpx's lines, fed byte by byte."""
    pieces: Iterable[bytes] = (body[n : n + 1] for n in range(len(body)))
    response = httpx.Response(200, content=pieces, headers={"content-type": "text/event-stream"})
    source = EventSource(client=None, response=response)  # type: ignore[arg-type]  # it fetches files only
    return [(event.event.value, event.data, event.id) for event in source]


def test_the_frames_are_the_documented_ones() -> None:
    assert encode(TextDelta("Once upon a time"), TextDelta("\nnew line"), DONE) == (
        b"event: output\nid: 1795984714:0\ndata: Once upon a time\n\n"
        b"event: output\nid: 1795984714:1\ndata: \ndata: new line\n\n"
        b"event: done\nid: 1795984714:2\ndata: {}\n\n"
    )


def test_a_cancelled_stream_ends_in_american_spelling() -> None:
    assert plain(encode(TextDelta("a"), Finished(FinishReason.CANCELLED)))[-1] == (
        "done",
        '{"reason": "canceled"}',
        f"{CREATED}:1",
    )


def test_a_failure_is_an_error_with_an_id_and_then_done_also_before_the_first_text() -> None:
    assert plain(encode(Failed(UpstreamError("It broke.\u2028")))) == [
        ("error", '{"detail": "It broke.\\u2028"}', f"{CREATED}:0"),
        ("done", '{"reason": "error"}', f"{CREATED}:1"),
    ]


def test_the_python_client_sees_a_failure_before_the_first_text() -> None:
    with pytest.raises(RuntimeError, match="It broke"):
        python_client(encode(Started("id", "m", 1), Failed(UpstreamError("It broke."))))


def test_tokens_that_are_or_hold_newlines_keep_them() -> None:
    """Case S5."""
    body = texts("a", "\n", "\n\n", "b\r\nc", "", " d")
    for decode in (plain, ours, python_client):
        assert joined(decode(body)) == "a\n\n\nb\nc d"


def test_a_line_end_cut_between_two_tokens_is_one() -> None:
    for decode in (plain, ours, python_client):
        assert joined(decode(texts("a\r", "\nb\r", "c", "\r", "\r\n", "\n"))) == "a\nb\nc\n\n\n"


def test_rare_separators_cost_the_python_client_themselves_alone() -> None:
    text = f"안녕 {RARE} 👋🏽 a\u2028b"
    assert joined(ours(texts(text))) == text
    assert joined(python_client(texts(text))) == re.sub(f"[{RARE}]", "", text)


@pytest.mark.parametrize("text", ["https://example.org", "data:text/plain,x", "https:", "data:"])
def test_text_that_looks_like_a_file_stays_text(text: str) -> None:
    events = python_client(texts(text, " and more"))
    assert all(isinstance(data, str) for _, data, _ in events)
    assert joined(events) == f"{text} and more"


def test_thinking_is_not_output() -> None:
    assert joined(plain(encode(ReasoningDelta("hm"), TextDelta("42"), DONE))) == "42"


def test_every_event_has_a_known_name_and_a_rising_id_and_done_comes_once_and_last() -> None:
    body = encode(Started("id", "m", 1), *(TextDelta(f"{RARE}{n}") for n in range(30)), Failed(UpstreamError("x")))
    events = plain(body)
    assert {event for event, _, _ in events} == {"output", "error", "done"}
    assert [id for _, _, id in events] == [f"{CREATED}:{n}" for n in range(len(events))]
    assert [event for event, _, _ in events].index("done") == len(events) - 1
    assert not body.startswith(b"\xef\xbb\xbf")


def test_a_stream_resumed_after_any_event_brings_exactly_the_rest() -> None:
    """Case Q1."""
    events: list[StreamEvent] = [
        Started("id", "m", 1),
        *(TextDelta(f"a{RARE}\r") for _ in range(3)),
        TextDelta("\nhttps:"),
        DONE,
    ]
    whole = plain(encode(*events))
    for after in range(len(whole)):
        assert plain(encode(*events, after=after)) == whole[after + 1 :]


def test_a_lone_surrogate_does_not_stop_the_stream() -> None:
    assert joined(plain(texts("a\ud83d", "b"))) == "a?b"


@given(st.lists(st.text(alphabet=st.sampled_from("a \n\r:{}한👩‍" + RARE + "h t p s d") | st.characters(codec="utf-8"))))
def test_any_text_arrives_whole(pieces: list[str]) -> None:
    text = "".join(pieces).replace("\r\n", "\n").replace("\r", "\n")
    body = texts(*pieces)
    assert joined(ours(body)) == text
    assert joined(plain(body)) == text
    assert joined(python_client(body)) == re.sub(f"[{RARE}]", "", text)
    assert json.loads(ours(body)[-1][1]) == {}


def test_a_readers_own_trouble_has_ids_that_miss_nothing_when_it_comes_back() -> None:
    for after, place in ((-1, "1"), (3, "3")):
        encoder = EventEncoder(CREATED, after)
        frames = [frame for text in ("a", "b") for frame in encoder.encode(TextDelta(text))]
        encoder.interrupt()
        frames += encoder.encode(Failed(UpstreamError("The store is away.")))
        found = plain(b"".join(frames))[-2:]
        assert [(event, id) for event, _, id in found] == [
            ("error", f"{CREATED}:{place}.1"),
            ("done", f"{CREATED}:{place}.2"),
        ]
