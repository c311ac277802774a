"""Whatever comes, a parser gives values or one of Polywire's own errors: nothing stray, and in any cut the same.

The corpus are the seeds below; hypothesis puts its own finds beside them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from adapters.event_stream import FrameDecoder
from adapters.line_reader import LineReader
from gateway.errors import GatewayError, InvalidRequest
from gateway.sse import SseDecoder
from tests.upstreams.aws_fake import CONVERSE_TEXT
from wires.openai.realtime import client_events
from wires.replicate.inputs import parse_body, parse_chat
from wires.websocket.messages import parse as parse_message

EXAMPLES = 5000 if os.environ.get("POLYWIRE_FAULTS") else 150
SEEDS = (
    b"", b"\xef\xbb\xbfdata: x\n\n", b"data\n\n", b"data:x\r\rid\x00: y\n\n", b": c\n\nevent: a\ndata: \xff\n\n",
    b'{"type": "chat", "text": "\\ud800"}', b'{"type": ["chat"]}', b'{"type": "chat", "messages": [[[]]]}', b"[" * 5000,
    b'{"a":' * 5000, b"NaN", b'{"type": "speak", "text": 1e999}', b'{"input": {"prompt": null, "seed": 1e400}}',
    b"\x00\x00\x00\x10\x00\x00\x00\x00\x05\xc2\x48\xeb", b"\xff" * 16,
    b'{"type":"response.create","response":{"tools":{}}}',
)  # fmt: skip
CONVERSE = b"".join(CONVERSE_TEXT)
TYPES = (
    "chat",
    "speak",
    "configure",
    "cancel",
    "session.update",
    "conversation.item.create",
    "response.create",
    "ping",
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(TYPES),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["type", "id", "text", "messages", "input", "item", "response", "session", "tools", "prompt"]
            )
            | st.text(max_size=4),
            inner,
            max_size=6,
        )
    ),
    max_leaves=12,
)
MESSAGES = JSON.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=200) | st.sampled_from(SEEDS)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _chat(data: bytes) -> object:
    body = parse_body(data)
    return parse_chat("m", body.input if isinstance(body.input, dict) else {})


WHOLE: dict[str, Callable[[bytes], object]] = {
    "socket messages": lambda data: parse_message(_text(data)),
    "realtime events": lambda data: client_events.parse(_text(data)),
    "replicate bodies": _chat,
}
PIECEWISE: dict[str, Callable[[], Any]] = {
    "server-sent events": lambda: SseDecoder(limit=100_000),
    "event streams": lambda: FrameDecoder("p"),
    "lines": lambda: LineReader("p"),
}


def _refusal(parser: str, data: bytes) -> GatewayError | None:
    try:
        WHOLE[parser](data)
    except GatewayError as error:
        return error
    return None


@pytest.mark.parametrize("parser", list(WHOLE))
def test_a_message_is_read_or_refused(parser: str) -> None:
    @settings(max_examples=EXAMPLES, deadline=None)
    @given(MESSAGES)
    def read(data: bytes) -> None:
        refusal = _refusal(parser, data)
        assert refusal is None or (400 <= refusal.status < 500 and len(refusal.message) < 2000)

    read()
    assert all((_refusal(parser, seed) or InvalidRequest("")).status < 500 for seed in SEEDS)


def _read(parser: str, pieces: list[bytes]) -> tuple[list[Any], str | None]:
    """What came out, and the kind of error that ended it."""
    decoder = PIECEWISE[parser]()
    found: list[Any] = []
    try:
        for piece in pieces:
            # One by one: what comes before an error has come.
            for value in decoder.feed(piece):
                found.append(value)
        if hasattr(decoder, "end"):
            found += list(decoder.end() or ())
    except GatewayError as error:
        return found, type(error).__name__
    return found, None


@pytest.mark.parametrize("parser", list(PIECEWISE))
def test_bytes_are_read_or_refused_and_every_cut_is_the_same(parser: str) -> None:
    streams = st.lists(st.sampled_from((*SEEDS, CONVERSE)) | st.binary(max_size=40), max_size=4).map(b"".join)

    @settings(max_examples=EXAMPLES, deadline=None)
    @given(streams, st.lists(st.integers(0, 400), max_size=6))
    @example(CONVERSE, [1, 2, 3])
    def read(data: bytes, places: list[int]) -> None:
        cuts = sorted({0, *places, len(data)})
        pieces = [data[start:end] for start, end in pairwise(cuts)]
        assert _read(parser, pieces) == _read(parser, [data])

    read()
