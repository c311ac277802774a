"""What an OpenSearch cluster's ML Commons answers, without I/O: the bytes of a streamed or a whole prediction -> text.

`is_last` is the terminal marker. Met here: error frames that are no valid JSON (the cluster escapes only quotes and
newlines), an error object without `data:` in a 200 event stream, agent outputs before the one named `response`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from adapters.http import error_for_status
from adapters.provider_events import completed_events
from gateway.config import ProviderRow
from gateway.errors import GatewayError, Truncated, UpstreamError
from gateway.sse import SseDecoder

LONGEST_QUOTE = 300
LONGEST_BARE_ERROR = 64 * 1024
ERROR_START, ERROR_END = b'{"error": "', b'"}'


class _Frame(msgspec.Struct):
    inference_results: list[dict[str, Any]] | None = None
    error: Any = None
    status: int | None = None


_decode = msgspec.json.Decoder(_Frame).decode


class PredictDecoder:
    """The body of `_predict/stream`."""

    def __init__(self, row: ProviderRow) -> None:
        self._row = row
        self._events = SseDecoder()
        self._started = False
        self._bare: bytearray | None = None
        self.ended = False
        """Whether `is_last` was seen: nothing after it counts."""

    def feed(self, data: bytes) -> Iterator[str]:
        """The pieces of text that `data` completes; then raises GatewayError, if it tells of a failure."""
        if not self._started and data.strip():
            self._started = True
            self._bare = bytearray() if data.lstrip().startswith(b"{") else None
        if self._bare is not None:
            self._bare += data[: LONGEST_BARE_ERROR - len(self._bare)]
            return
        for event in completed_events(self._row, self._events, data):
            if not self.ended and (text := self._take(event.data)):
                yield text

    def finish(self) -> None:
        """The body's end. Raises the error that stands there without `data:`, or Truncated without `is_last`."""
        if self._bare is not None:
            self._take(bytes(self._bare))
        if not self.ended:
            raise Truncated(
                f"Provider {self._row.name!r} ended its stream without 'is_last'; the answer is incomplete.",
                provider=self._row.name,
            )

    def _take(self, payload: bytes) -> str:
        try:
            frame = _decode(payload)
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._unreadable(payload) from error
        if frame.error is not None:
            raise frame_error(self._row, frame.error, frame.status)
        response = response_map(frame.inference_results)
        self.ended = response.get("is_last") is True
        content = response.get("content")
        return content if isinstance(content, str) else ""

    def _unreadable(self, payload: bytes) -> GatewayError:
        text = error_text(payload)
        if text is None:
            return UpstreamError(f"Provider {self._row.name!r} sent a frame that is not JSON.", provider=self._row.name)
        return frame_error(self._row, text, None)


def response_map(results: object) -> dict[str, Any]:
    """The `dataAsMap` of the output named `response`, empty when there is none."""
    for result in results if isinstance(results, list) else ():
        outputs = result.get("output") if isinstance(result, dict) else None
        for output in outputs if isinstance(outputs, list) else ():
            if isinstance(output, dict) and output.get("name") == "response":
                value = output.get("dataAsMap")
                return value if isinstance(value, dict) else {}
    return {}


def error_text(payload: bytes) -> str | None:
    """The text of an error frame that is no valid JSON, None when it is no error frame either."""
    text = payload.decode("utf-8", "replace")
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        start, end = payload.find(ERROR_START), payload.rfind(ERROR_END)
        if start < 0 or end < start:
            return None
        return payload[start + len(ERROR_START) : end].decode("utf-8", "replace")
    error = value.get("error") if isinstance(value, dict) else None
    return error if isinstance(error, str) else None


def frame_error(row: ProviderRow, error: Any, status: int | None) -> GatewayError:
    """The GatewayError for an error inside a 200 stream: by its status, where it has one."""
    error_type, reason = error_parts(error)
    if status is not None and 400 <= status < 600:
        return refusal(row, status, error_type, reason)
    said = f": {row.scrub(reason)[:LONGEST_QUOTE]}" if reason else "."
    return UpstreamError(f"Provider {row.name!r} reported an error{said}", provider=row.name)


def refusal(
    row: ProviderRow, status: int, error_type: str, reason: str, retry_after: float | None = None
) -> GatewayError:
    """The GatewayError for an error status of the cluster or of the model behind it."""
    if status in (401, 403) and error_type == "status_exception":
        # The cluster took our credentials; it is the model behind it that refuses, or is disabled.
        said = f": {row.scrub(reason)[:LONGEST_QUOTE]}" if reason else "."
        return UpstreamError(f"Provider {row.name!r} may not use this model ({status}){said}", provider=row.name)
    return error_for_status(row, status, reason, retry_after=retry_after)


def error_parts(error: object) -> tuple[str, str]:
    """Type and reason of an `error` value: an object, or a sentence alone, which has no type."""
    if not isinstance(error, dict):
        return "", error if isinstance(error, str) else ""
    words = (error.get("type"), error.get("reason"))
    error_type, reason = (word if isinstance(word, str) else "" for word in words)
    return error_type, reason
