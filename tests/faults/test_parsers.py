"""Whatever comes, a parser gives values or one of Polywire's own errors: nothing stray, and in any cut the same."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.errors import GatewayError
from gateway.events import ToolCallStart
from gateway.sse import EventTooLong
from tests.faults.parsers import MESSAGES, STREAMS, bodies, corpus, inputs, keep

SECONDS = os.environ.get("POLYWIRE_FAULTS")
EXAMPLES = 5000 if SECONDS else 60
FUZZED = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=not SECONDS,
    database=None,
    suppress_health_check=list(HealthCheck),
)
BOUNDED = {"audio": 300}
"""FFmpeg takes its time."""


MADE_ID = re.compile(r"call_[0-9a-f]{32}")


def _refusal(parser: str, data: bytes) -> GatewayError | None:
    try:
        MESSAGES[parser](data)
    except GatewayError as error:
        return error
    return None


def _right(parser: str, data: bytes) -> None:
    """It is read or refused, as the client's fault and in a sentence."""
    refusal = _refusal(parser, data)
    assert refusal is None or (400 <= refusal.status < 500 and len(refusal.message) < 2000)


def _read(parser: str, pieces: list[bytes]) -> tuple[list[Any], str | None]:
    """What came out, and the kind of error that ended it."""
    decoder: Any = STREAMS[parser]()
    found: list[Any] = []
    try:
        for piece in pieces:
            # One by one: what comes before an error has come.
            for value in decoder.feed(piece):
                found.append(_repeatable(value))
        if hasattr(decoder, "end"):
            for value in decoder.end() or ():
                found.append(_repeatable(value))
    except (GatewayError, EventTooLong) as error:
        return found, type(error).__name__
    return found, None


def _repeatable(value: Any) -> Any:
    """Where an upstream gave a call no id, it has one that is made anew each time."""
    made = isinstance(value, ToolCallStart) and MADE_ID.fullmatch(value.call_id)
    return replace(value, call_id="made") if made else value


def _same(parser: str, data: bytes, places: list[int]) -> None:
    """It is the same in one piece, in single bytes and cut at `places`."""
    cuts = sorted({0, *(place % (len(data) + 1) for place in places), len(data)})
    pieces = [data[start:end] for start, end in pairwise(cuts)]
    whole = _read(parser, [data])
    assert _read(parser, pieces) == whole
    assert _read(parser, [data[place : place + 1] for place in range(len(data))]) == whole


def _kept(parser: str, check: Callable[..., None], data: bytes, *more: Any) -> None:
    """`check`, and whatever fails it is kept for every later run."""
    try:
        check(parser, data, *more)
    except BaseException:
        keep(parser, data)
        raise


@pytest.mark.parametrize("parser", MESSAGES)
def test_what_is_kept_is_read_or_refused(parser: str) -> None:
    for data in corpus(parser):
        _right(parser, data)


@pytest.mark.parametrize("parser", STREAMS)
def test_what_is_kept_is_the_same_in_any_cut(parser: str) -> None:
    for data in corpus(parser):
        _same(parser, data, [1, 2, 3, 5, 8, 13, 21, 34, 55, 89])


@pytest.mark.timeout(900 if SECONDS else 120)
@pytest.mark.parametrize("parser", MESSAGES)
def test_a_message_is_read_or_refused(parser: str) -> None:
    @settings(FUZZED, max_examples=min(EXAMPLES, BOUNDED.get(parser, EXAMPLES)))
    @given(inputs(parser) | st.binary(max_size=60) | bodies(parser))
    def read(data: bytes) -> None:
        _kept(parser, _right, data)

    read()


@pytest.mark.timeout(900 if SECONDS else 120)
@pytest.mark.parametrize("parser", STREAMS)
def test_a_stream_is_read_or_refused_and_every_cut_is_the_same(parser: str) -> None:
    @FUZZED
    @given(inputs(parser) | st.binary(max_size=60), st.lists(st.integers(0, 4000), max_size=6))
    def read(data: bytes, places: list[int]) -> None:
        _kept(parser, _same, data, places)

    read()
