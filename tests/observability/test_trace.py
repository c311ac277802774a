"""Trace headers: what is passed on, what is dropped, and that a signed AWS request takes them."""

from __future__ import annotations

import pytest

from gateway.tracing import current_trace, read_trace, trace_id
from tests.aws.account import CANARIES, at, events, read_all
from tests.aws.conftest import account  # noqa: F401 - a fixture
from tests.upstreams.aws_fake import CONVERSE_TEXT, stream
from tests.upstreams.byte_server import serving

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    "parent",
    [
        "",
        "00-1-2-3",
        f"ff-{TRACE}-00f067aa0ba902b7-01",
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-00f067aa0ba902b7-01",
        PARENT + "\r\nx-other: 1",
    ],
)
def test_what_is_no_trace_is_dropped_with_its_state(parent: str) -> None:
    assert read_trace([("traceparent", parent), ("tracestate", "vendor=1")]) == {}


def test_states_are_joined_and_bounded() -> None:
    headers = [("traceparent", PARENT), ("tracestate", "a=1"), ("tracestate", "b=2"), ("x-other", "3")]
    assert read_trace(headers) == {"traceparent": PARENT, "tracestate": "a=1,b=2"}
    assert read_trace([("traceparent", PARENT), ("tracestate", "a" * 513)]) == {"traceparent": PARENT}
    assert read_trace([("traceparent", PARENT), ("traceparent", PARENT)]) == {}


async def test_a_signed_request_carries_the_trace() -> None:
    token = current_trace.set(read_trace([("traceparent", PARENT), ("tracestate", "vendor=1")]))
    try:
        assert trace_id() == TRACE
        async with serving(stream(*CONVERSE_TEXT)) as server, at(server, "bedrock") as bedrock:
            _, error = await read_all(events(bedrock))
            assert error is None
    finally:
        current_trace.reset(token)
    (request,) = server.requests
    assert (request.headers["traceparent"], request.headers["tracestate"]) == (PARENT, "vendor=1")
    assert "traceparent" not in request.headers["authorization"]
    assert CANARIES[1] not in str(request.headers)
