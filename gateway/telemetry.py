"""Metrics and the one log line per request. Labels hold configured names only; nothing here sees a prompt or a key."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, TextIO, TypeVar

from prometheus_client import Counter, Gauge, Histogram
from pydantic_core import to_json

from gateway.errors import Cancelled, GatewayError, Truncated
from gateway.events import Failed, Finished, FinishReason, Usage
from gateway.tally import Tally
from gateway.tracing import trace_id

# Names and bucket bounds are those of OpenTelemetry's GenAI conventions.
FIRST_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
TOKEN_SECONDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
TOKENS = tuple(4**power for power in range(14))

STREAMS = Counter("polywire_streams", "Streams by their true outcome.", ["wire", "provider", "outcome"])
REQUESTS = Counter("polywire_requests", "Answered requests; health and metrics are not counted.", ["wire", "status"])
OPEN = Gauge("polywire_streams_open", "Streams at work.", ["wire"], multiprocess_mode="livesum")
FIRST_TOKEN = Histogram(
    "gen_ai_server_time_to_first_token_seconds", "Time to the first delta.", ["wire", "provider"], buckets=FIRST_SECONDS
)
PER_TOKEN = Histogram(
    "gen_ai_server_time_per_output_token_seconds",
    "Mean time between deltas.",
    ["wire", "provider"],
    buckets=TOKEN_SECONDS,
)
TOKEN_USAGE = Histogram(
    "gen_ai_client_token_usage", "Tokens of one answer.", ["wire", "provider", "gen_ai_token_type"], buckets=TOKENS
)

CODES = {
    400: "invalid_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    413: "payload_too_large",
    415: "unsupported_media_type",
    422: "invalid_request",
    429: "rate_limited",
    499: "cancelled",
    500: "internal_error",
    503: "unavailable",
    504: "timeout",
}
"""The codes of refusals that are not ours: BentoML's answers to its own API."""

tally = Tally()
access_log = logging.getLogger("polywire.access")
RECORD = vars(logging.LogRecord(access_log.name, logging.INFO, "", 0, "", None, None))
"""What the records of all lines have in common; each would look for its thread, process and path again."""

MetricT = TypeVar("MetricT", Counter, Gauge, Histogram)


@cache
def _labelled(metric: MetricT, *labels: str) -> MetricT:
    """One child of a metric. Labels are configured names, so there are few."""
    return metric.labels(*labels)


@dataclass(slots=True)
class RequestScope:
    """What is known of the request that is being served.

    `logged` is set once its line has been written, `counted` once its owner's allowance was charged; `deferred` says
    that the run which it began writes the line. `code` is the error code of a refusal. `refusal` is an answer that
    replaces the one on its way: it serves the API whose answers
    BentoML, not we, make.
    """

    request_id: str
    wire: str
    started_at: float = field(default_factory=time.perf_counter)
    logged: bool = False
    counted: bool = False
    deferred: bool = False
    code: str | None = None
    refusal: Any = None


current_request: ContextVar[RequestScope | None] = ContextVar("polywire_request", default=None)


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes messages as they are; the way through a Formatter costs as much as the writing."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.stream.write(f"{record.msg}\n")
            self.stream.flush()
        except Exception:
            self.handleError(record)


def configure_logging() -> None:
    """Send Polywire's own loggers to stderr: JSON lines as they are, everything else with its level."""
    for name, kind in (("polywire.access", LineHandler), ("polywire", logging.StreamHandler)):
        logger = logging.getLogger(name)
        if logger.handlers:
            continue
        handler = kind(sys.stderr)
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False


class Meter:
    """Measures one stream and, when it closes, counts its outcome and writes its log line.

    Exactly one outcome is counted: `finished`, `failed`, `truncated` (a failure whose cause is a truncated upstream)
    or `cancelled` (closed before a terminal event, or stopped by its client).
    """

    def __init__(self, wire: str, model: str, provider: str) -> None:
        self.wire, self.model, self.provider = wire, model, provider
        self.request = current_request.get()
        self._began = time.perf_counter()
        self._first: float | None = None
        self._first_audio: float | None = None
        self._last = self._began
        self._deltas = 0
        self._terminal: Finished | Failed | None = None
        self._outcome: str | None = None
        """Set once closed."""
        tally.add(_labelled(OPEN, wire))

    @property
    def ttft_ms(self) -> float | None:
        """Milliseconds to the first delta, None before it."""
        return None if self._first is None else (self._first - self._began) * 1000

    @property
    def ttfa_ms(self) -> float | None:
        """Milliseconds to the first audio, None before it."""
        return None if self._first_audio is None else (self._first_audio - self._began) * 1000

    @property
    def total_ms(self) -> float:
        """Milliseconds since the stream was asked for."""
        return (time.perf_counter() - self._began) * 1000

    def deltas(self, count: int) -> None:
        """So many text, reasoning or tool call deltas passed."""
        self._last = time.perf_counter()
        if self._first is None:
            self._first = self._last
        self._deltas += count

    def audio(self) -> None:
        """Audio passed."""
        if self._first_audio is None:
            self._first_audio = time.perf_counter()

    def end(self, terminal: Finished | Failed) -> None:
        """The stream's terminal event; the last one counts, since a voice may fail after its chat has finished."""
        self._terminal = terminal

    def cancel(self) -> None:
        """The stream was stopped: what its provider had still to say does not count."""
        self._terminal = Finished(FinishReason.CANCELLED)

    @property
    def outcome(self) -> str:
        """The outcome so far; a stream without a terminal event counts as cancelled."""
        if self._outcome is not None:
            return self._outcome
        match self._terminal:
            case Finished(reason=reason) if reason is not FinishReason.CANCELLED:
                return "finished"
            case Failed(error=Truncated()):
                return "truncated"
            case Failed(error=error) if not isinstance(error, Cancelled):
                return "failed"
            case _:
                return "cancelled"

    @property
    def terminal(self) -> Finished | Failed | None:
        """The stream's terminal event so far."""
        return self._terminal

    def close(self) -> None:
        """Count and log; a second call does nothing."""
        if self._outcome is not None:
            return
        self._outcome = self.outcome
        tally.add(_labelled(OPEN, self.wire), -1)
        tally.add(_labelled(STREAMS, self.wire, self.provider, self.outcome))
        usage = self._terminal.usage if isinstance(self._terminal, Finished) else None
        self._observe(usage)
        error = self._terminal.error if isinstance(self._terminal, Failed) else None
        write_access_line(self.request, self, usage, error)
        if error is not None:
            # It holds the frames that it came through, with all that they have read, and they hold this meter.
            self._terminal = None

    def _observe(self, usage: Usage | None) -> None:
        if self._first is not None:
            tally.observe(_labelled(FIRST_TOKEN, self.wire, self.provider), self._first - self._began)
            if self._deltas > 1:
                per_delta = (self._last - self._first) / (self._deltas - 1)
                tally.observe(_labelled(PER_TOKEN, self.wire, self.provider), per_delta)
        if usage is not None:
            tally.observe(_labelled(TOKEN_USAGE, self.wire, self.provider, "input"), usage.input_tokens)
            tally.observe(_labelled(TOKEN_USAGE, self.wire, self.provider, "output"), usage.output_tokens)


def write_access_line(
    request: RequestScope | None, meter: Meter, usage: Usage | None, error: GatewayError | None
) -> None:
    """One JSON line for a stream that has ended."""
    line: dict[str, object] = {
        "time": _now(),
        "request_id": request.request_id if request else None,
        "trace_id": trace_id(),
        "wire": meter.wire,
        "model": meter.model,
        "provider": meter.provider,
        "outcome": meter.outcome,
        "code": error.code if error else None,
        "ttft_ms": _rounded(meter.ttft_ms),
        "ttfa_ms": _rounded(meter.ttfa_ms),
        "duration_ms": _rounded(meter.total_ms),
        "input_tokens": usage.input_tokens if usage else None,
        "output_tokens": usage.output_tokens if usage else None,
    }
    if request:
        request.logged = True
    _write(line)


def count_request(wire: str, status: int) -> None:
    """Count an answer by its HTTP status."""
    tally.add(_labelled(REQUESTS, wire, str(status)))


def log_refusal(request: RequestScope, status: int) -> None:
    """One JSON line for a request that was refused before a stream began."""
    log_request(request, status, "failed", request.code or CODES.get(status, "refused"))


def log_request(request: RequestScope, status: int, outcome: str, code: str | None = None) -> None:
    """One JSON line for a request that has ended, unless it has one: that of its stream or its refusal."""
    if request.logged:
        return
    request.logged = True
    line = {
        "time": _now(),
        "request_id": request.request_id,
        "trace_id": trace_id(),
        "wire": request.wire,
        "outcome": outcome,
        "status": status,
        "code": code,
        "duration_ms": _rounded((time.perf_counter() - request.started_at) * 1000),
    }
    _write(line)


def _write(line: Mapping[str, object]) -> None:
    if not access_log.isEnabledFor(logging.INFO):
        return
    # Not `access_log.info`, which looks for its caller through the stack, four times as long as all the rest.
    text = to_json(line, exclude_none=True).decode()
    record = logging.LogRecord.__new__(logging.LogRecord)
    vars(record).update(RECORD, msg=text, created=time.time())
    for handler in access_log.handlers:
        handler.handle(record)


def _now() -> str:
    """The time in UTC, by the second."""
    return _written(int(time.time()))


@lru_cache(maxsize=1)
def _written(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(second))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
