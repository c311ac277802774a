"""W3C trace context: what a caller says of its trace is passed on, as it is, to the providers that its request asks.

Polywire opens no spans of its own, so a provider's span hangs below the caller's; the log line has the trace's id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextvars import ContextVar

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})(?P<trace>[0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
STATE = re.compile(r"[\x20-\x7e]{1,512}")

current_trace: ContextVar[Mapping[str, str]] = ContextVar("polywire_trace", default={})  # noqa: B039 - never written to


def read_trace(headers: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """The trace headers among `headers` (names in lower case); nothing when they are not what W3C says."""
    found = [(name, value.strip()) for name, value in headers if name in (TRACEPARENT, TRACESTATE)]
    parents = [value for name, value in found if name == TRACEPARENT]
    if len(parents) != 1 or not PARENT.fullmatch(parents[0]):
        return {}
    state = ",".join(value for name, value in found if name == TRACESTATE and value)
    return {TRACEPARENT: parents[0]} | ({TRACESTATE: state} if STATE.fullmatch(state) else {})


def trace_headers() -> Mapping[str, str]:
    """What a request to a provider carries of the trace that it is made for."""
    return current_trace.get()


def trace_id() -> str | None:
    """The id of that trace, for logs."""
    parent = current_trace.get().get(TRACEPARENT)
    found = PARENT.fullmatch(parent) if parent else None
    return found["trace"] if found else None
