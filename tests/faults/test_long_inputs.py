"""What a stranger, a caller or an upstream may send at length costs time in proportion to it, whatever it holds."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from starlette.datastructures import Headers

from gateway.errors import GatewayError
from gateway.spoken import spoken
from gateway.sse import EventTooLong
from gateway.template import Place, Values, fill
from tests.faults.parsers import MESSAGES, STREAMS
from wires.auth import credentials
from wires.opensearch.filtering import Absent, pick

MOST_TIMES = 25
"""Between the tenfold of a linear cost and the hundredfold of a quadratic one."""
FLOOR_SECONDS = 0.004
"""Below this the clock and the machine say more than the parser."""


def header(value: str) -> object:
    return list(credentials(Headers({"authorization": value, "sec-websocket-protocol": value})))


def filled(template: str) -> object:
    return [fill(template, Values({"a": "1"}, {"b": "2"}), place) for place in Place]


def streamed(parser: str) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        decoder: Any = STREAMS[parser]()
        for start in range(0, len(data), 1000):
            for _ in decoder.feed(data[start : start + 1000]):
                pass

    return read


def picked(path: str) -> None:
    with suppress(Absent):
        pick(path, {})


CASES: list[tuple[str, Callable[[Any], object], str, int]] = [
    *(
        ("header", header, unit, 6000)
        for unit in ("AWS4-HMAC-SHA256 Credential=", "AWS4-HMAC-SHA256 ", "Basic AA", "Bearer ,")
    ),
    *(("Cancel-After", MESSAGES["replicate-headers"], unit, 6000) for unit in ("1", "1 ", "1h", "1.", "wait=", ",")),
    *(
        ("template", filled, unit, 20_000)
        for unit in ("${parameters.a:-", "${parameters.", '"${parameters.a', "$", "\\", '"')
    ),
    *(("template", filled, unit, 2000) for unit in ("${parameters.a}", "${parameters.b}", "${credential.c}")),
    *(("filter", picked, unit, 20_000) for unit in ("$.a", "$['", "$[0]", "$.*")),
    *(("spoken", spoken, unit, 6000) for unit in ("[", "<a ", "`", "*_", "(\n", "http://", "😀", "![", "<!--", ". ")),
    *(("json", MESSAGES["socket-messages"], unit, 20_000) for unit in ("[", '{"a":', '"\\ud800', "1", " ")),
    *(
        (parser, streamed(parser), unit, 20_000)
        for parser in STREAMS
        for unit in (
            "data: [1,\n",
            "data:",
            "\n",
            "\r",
            "id: 1\n",
            ": c\n",
            "{",
            "\x00\x00\x00\x10",
            'data: {"a": 1}\n\n',
        )
    ),
]


@pytest.mark.parametrize(("name", "read", "unit", "size"), CASES, ids=[f"{case[0]} {case[2]!r}" for case in CASES])
def test_ten_times_as_long_takes_ten_times_as_long(
    name: str, read: Callable[[Any], object], unit: str, size: int
) -> None:
    def least(length: int) -> float:
        text = unit * (length // len(unit))
        given: Any = text.encode() if name in (*STREAMS, "json", "Cancel-After") else text
        return min(_seconds(read, given) for _ in range(2))

    assert least(10 * size) < MOST_TIMES * max(least(size), FLOOR_SECONDS)


def _seconds(read: Callable[[Any], object], given: Any) -> float:
    began = time.process_time()
    with suppress(GatewayError, EventTooLong):
        read(given)
    return time.process_time() - began


def test_parameters_that_name_one_another_do_not_multiply_without_end() -> None:
    laughs = {name: f"${{parameters.{following}}}" * 50 for name, following in zip("abcdefg", "bcdefgh", strict=True)}
    began = time.process_time()
    with pytest.raises(GatewayError, match="placeholders"):
        fill("${parameters.a}", Values({**laughs, "h": json.dumps("x")}), Place.BODY)
    assert time.process_time() - began < 2
