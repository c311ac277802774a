"""Events to `/ws` frames: JSON objects for everything but audio, bytes for audio."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, assert_never

from gateway.errors import GatewayError
from gateway.events import (
    AudioDelta,
    AudioStart,
    Failed,
    Finished,
    ReasoningDelta,
    Started,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)

Frame = dict[str, Any] | bytes


class FrameEncoder:
    """The frames of one turn. `id` and `seq` are put on by the turn, which may add frames of its own."""

    def __init__(self, request_id: str | None) -> None:
        self._request_id = request_id
        self._calls: list[ToolCallStart] = []

    def encode(self, event: StreamEvent) -> Iterator[Frame]:
        match event:
            case TextDelta(text=text):
                yield {"type": "text", "text": text}
            case AudioDelta(data=data):
                yield data
            case Started(model=model):
                yield {"type": "started", "model": model, "request_id": self._request_id}
            case ReasoningDelta(text=text):
                yield {"type": "reasoning", "text": text}
            case ToolCallStart():
                self._calls.append(event)
                yield _tool_call(event, "")
            case ToolCallDelta(index=index, arguments=arguments):
                yield _tool_call(self._calls[index], arguments)
            case AudioStart(format=format):
                wire_format = {"encoding": str(format.encoding), "rate": format.rate, "channels": format.channels}
                yield {"type": "audio", "format": wire_format}
            case Finished(reason=reason, usage=usage):
                yield {"type": "finished", "reason": str(reason), "usage": _counts(usage)}
            case Failed(error=error):
                yield error_frame(error)
            case _:
                assert_never(event)


def error_frame(error: GatewayError) -> dict[str, Any]:
    """An error, of a turn or of a message; it leaves the socket open."""
    return {
        "type": "error",
        "code": error.code,
        "status": error.status,
        "message": error.message,
        "retryable": error.retryable,
    }


def _counts(usage: Usage | None) -> dict[str, int] | None:
    if usage is None:
        return None
    return {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}


def _tool_call(call: ToolCallStart, arguments: str) -> dict[str, Any]:
    return {
        "type": "tool_call",
        "index": call.index,
        "call_id": call.call_id,
        "name": call.name,
        "arguments": arguments,
    }
