"""Every parser of what comes from outside, and the corpus it is fed: `corpus/<parser>/`, a file for each input.

What ever failed stays there. Inputs are made of the corpus, its pieces and what is nearly it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from hypothesis import strategies as st

from adapters.chat_completions import ChatCompletionDecoder
from adapters.cog_events import CogDecoder
from adapters.converse_stream import ConverseDecoder
from adapters.event_stream import FrameDecoder
from adapters.line_reader import LineReader
from adapters.opensearch_frames import PredictDecoder
from adapters.replicate_events import PredictionDecoder
from adapters.sagemaker_dialects import ContainerDecoder
from gateway.config import ProviderRow, Settings
from gateway.decoding import decode_audio
from gateway.sse import SseDecoder
from gateway.template import Place, Values, fill
from gateway.trust import Trust
from wires.openai.realtime import client_events
from wires.opensearch.schema import parse_connector
from wires.replicate.inputs import parse_body, parse_chat, parse_duration, parse_speech, parse_wait
from wires.sagemaker.invocation import parse as parse_invocation
from wires.websocket.messages import parse as parse_message

CORPUS = Path(__file__).parent / "corpus"
ROW = ProviderRow(name="p", type="openai")
TRUST = Trust(Settings())
RATE = 16_000
TOKENS = (
    *(
        b"data:",
        b"data: ",
        b"event: error\n",
        b"id: 1\n",
        b": c\n",
        b"\r\n",
        b"\r",
        b"\n\n",
        b"[DONE]",
        b"\xef\xbb\xbf",
        b"\x00",
    ),
    *(
        b"null",
        b"true",
        b"-1",
        b"1e999",
        b"NaN",
        b"9" * 400,
        b'"\\ud800"',
        b"[]",
        b"{}",
        b'""',
        b"\xff",
        b"\xf0\x9f",
        b",",
    ),
    *(
        b"${parameters.a}",
        b"${parameters.a:-",
        b"${credential.key}",
        b"}",
        b"$",
        b'"',
        b"\\",
        b"error",
        b"type",
        b"\x00\x00\x00\x10",
    ),
)
"""What breaks parsers; put in between."""


class Decoder(Protocol):
    """Takes a stream's bytes however they are cut."""

    def feed(self, data: bytes, /) -> Iterable[object]: ...


class Chained:
    """One decoder behind another: what the first gives, `then` reads."""

    def __init__(self, first: Any, payload: Callable[[Any], Any], then: Any) -> None:
        self._first, self._payload, self._then = first, payload, then

    def feed(self, data: bytes) -> Iterator[object]:
        for found in self._first.feed(data):
            yield from self._then.feed(self._payload(found))

    def end(self) -> Iterator[object]:
        if hasattr(self._first, "end"):
            self._first.end()
        yield self._then.finish()


STREAMS: Mapping[str, Callable[[], Decoder]] = {
    "server-sent-events": lambda: SseDecoder(limit=100_000),
    "event-stream": lambda: FrameDecoder("p"),
    "lines": lambda: LineReader("p"),
    "chat-completions": lambda: Chained(SseDecoder(), lambda event: event.data, ChatCompletionDecoder(ROW)),
    "converse": lambda: Chained(FrameDecoder("p"), lambda frame: frame, ConverseDecoder("p")),
    "containers": lambda: ContainerDecoder(ROW),
    "replicate": lambda: PredictionDecoder(ROW),
    "cog": lambda: CogDecoder(ROW),
    "opensearch": lambda: PredictDecoder(ROW),
}


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _input(parse: Callable[[str, dict[str, Any]], object]) -> Callable[[bytes], object]:
    def read(data: bytes) -> object:
        body = parse_body(data)
        return parse("m", body.input if isinstance(body.input, dict) else {})

    return read


def _connector(data: bytes) -> object:
    body = _json(data)
    return parse_connector(body, TRUST) if isinstance(body, dict) else None


def _template(data: bytes) -> object:
    """The first line is the template, the others are its connector's and its caller's parameters."""
    template, *lines = _text(data).split("\n")
    given = dict(zip("abc", lines, strict=False))
    values = Values(connector=given, request={"c": lines[-1]} if lines else {}, credential={"key": "k"})
    return [fill(template, values, place).text for place in Place]


def _realtime(data: bytes) -> object:
    found = client_events.parse(_text(data))
    if isinstance(found, client_events.Malformed):
        raise found.error
    return found


MESSAGES: Mapping[str, Callable[[bytes], object]] = {
    "socket-messages": lambda data: parse_message(_text(data)),
    "realtime-events": _realtime,
    "replicate-bodies": _input(parse_chat),
    "replicate-speech": _input(parse_speech),
    "replicate-headers": lambda data: (parse_wait(_text(data)), parse_duration(_text(data))),
    "invocations": parse_invocation,
    "connectors": _connector,
    "templates": _template,
    "audio": lambda data: decode_audio(data, RATE, longest_seconds=60),
}


def corpus(parser: str) -> list[bytes]:
    """What is kept for `parser`."""
    return [path.read_bytes() for path in sorted((CORPUS / parser).iterdir())]


def keep(parser: str, data: bytes) -> None:
    """Have `data` tried in every later run."""
    name = f"found-{hashlib.sha256(data).hexdigest()[:8]}"
    (CORPUS / parser / name).write_bytes(data)


@st.composite
def inputs(draw: st.DrawFn, parser: str) -> bytes:
    """An input of the corpus after some changes, or a few of them joined."""
    kept = st.sampled_from(corpus(parser))
    data = bytearray(draw(kept))
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(("put", "cut", "flip", "double", "join"))):
            case "put":
                data[place:place] = draw(st.sampled_from(TOKENS) | st.binary(max_size=4))
            case "cut":
                del data[place : place + draw(st.integers(1, 20))]
            case "flip" if place < len(data):
                data[place] ^= draw(st.integers(1, 255))
            case "double":
                data[place:place] = data[place : place + draw(st.integers(1, 60))]
            case "join":
                data += draw(kept)
    return bytes(data)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(("a" * 300, "1", "[]")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def bodies(draw: st.DrawFn, parser: str) -> bytes:
    """A JSON input of the corpus in which some values are others."""
    value = _json(draw(st.sampled_from(corpus(parser))))
    for _ in range(draw(st.integers(1, 3))):
        value = _changed(draw, value)
    return json.dumps(value).encode()


def _changed(draw: st.DrawFn, value: Any) -> Any:
    if isinstance(value, dict) and value and draw(st.integers(0, 9)):
        key = draw(st.sampled_from(sorted(value)))
        return {**value, key: _changed(draw, value[key])}
    if isinstance(value, list) and value and draw(st.integers(0, 4)):
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], _changed(draw, value[place]), *value[place + 1 :]]
    return draw(json_values)
