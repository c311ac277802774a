"""Server-sent events: the same events however the bytes are cut, and the standard's corner cases."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.sse import EventTooLong, ServerSentEvent, SseDecoder, encode_sse
from tests.upstreams.cutting import cut

STREAM = (
    b"\xef\xbb\xbf: hello\n\n"
    b'event: output\nid: 1:0\ndata: {"a": 1}\n\n'
    b":\n"
    b"data:no space\n: inside\ndata:  two spaces\n\n"
    b"retry: 10\n\n"
    b"event: ping\n\n" + "data: 안녕 👋🏽\u2028still the same line\x85\n\n".encode() + b"data\n\n"
    b"event: done\ndata: {}\n\n"
)
EVENTS = [
    ServerSentEvent(b'{"a": 1}', "output", "1:0"),
    ServerSentEvent(b"no space\n two spaces", "message", "1:0"),
    ServerSentEvent("안녕 👋🏽\u2028still the same line\x85".encode(), "message", "1:0"),
    ServerSentEvent(b"", "message", "1:0"),
    ServerSentEvent(b"{}", "done", "1:0"),
]
line_ends = pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])


def decode(pieces: list[bytes]) -> list[ServerSentEvent]:
    decoder = SseDecoder()
    return [event for piece in pieces for event in decoder.feed(piece)]


@line_ends
@given(places=st.lists(st.integers(min_value=0, max_value=400), max_size=30))
@example(places=[])
@example(places=list(range(400)))
def test_any_cutting_gives_the_same_events(end: bytes, places: list[int]) -> None:
    assert decode(cut(STREAM.replace(b"\n", end), places)) == EVENTS


@line_ends
def test_a_cut_at_every_single_place_gives_the_same_events(end: bytes) -> None:
    stream = STREAM.replace(b"\n", end)
    for place in range(len(stream)):
        assert decode([stream[:place], stream[place:]]) == EVENTS


def test_line_ends_may_be_mixed() -> None:
    assert decode([b"data: a\r\n\ndata: b\r\r\ndata: c\n\r\n"]) == [
        ServerSentEvent(b"a"),
        ServerSentEvent(b"b"),
        ServerSentEvent(b"c"),
    ]


@given(
    data=st.text(st.characters(exclude_categories=["Cs"])),
    event=st.sampled_from([None, "output", "완료"]),
    id=st.sampled_from([None, "7", "a:b"]),
    places=st.lists(st.integers(min_value=0, max_value=100)),
)
def test_what_is_encoded_is_decoded(data: str, event: str | None, id: str | None, places: list[int]) -> None:
    lines = data.replace("\r\n", "\n").replace("\r", "\n")
    [decoded] = decode(cut(encode_sse(data, event=event, id=id), places))
    assert (decoded.text, decoded.event, decoded.id) == (lines, event or "message", id)


def test_an_event_without_its_blank_line_does_not_count_and_is_pending() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: whole\n\ndata: cut\n") == [ServerSentEvent(b"whole")]
    assert decoder.pending
    assert decoder.feed(b"\n") == [ServerSentEvent(b"cut")]
    assert not decoder.pending


def test_an_id_with_a_null_is_ignored() -> None:
    assert decode([b"id: a\0b\ndata: x\n\n"]) == [ServerSentEvent(b"x")]


def test_broken_utf_8_becomes_a_replacement_character() -> None:
    [event] = decode([b"data: \xff\xec\x95\n\n"])
    assert event.text == "\ufffd\ufffd"


@pytest.mark.parametrize(
    "endless",
    [b"data: " + b"x" * 1000, b"data: xxxxxxxx\n" * 100, b"data:\n" * 1000, b": " + b"x" * 1000],
    ids=["one line", "many lines", "many empty lines", "a comment"],
)
def test_an_event_without_an_end_is_refused(endless: bytes) -> None:
    decoder = SseDecoder(limit=500)
    pieces = cut(endless, range(0, len(endless), 64))
    with pytest.raises(EventTooLong):
        _ = [decoder.feed(piece) for piece in pieces]
