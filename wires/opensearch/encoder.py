"""Events -> the frames of `_predict/stream`: `data: {"inference_results": ...}`, the last one with `is_last` true."""

from __future__ import annotations

import json
from collections.abc import Iterator
from json.encoder import encode_basestring
from typing import assert_never

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
)
from wires.opensearch.errors import error_frame

HEAD = 'data: {"inference_results":[{"output":[{"name":"response","dataAsMap":{"content":'
MORE = ',"is_last":false}}]}]}\n\n'
LAST = f'{HEAD}"","is_last":true}}}}]}}]}}\n\n'.encode()


class ContentEncoder:
    """The texts that ML Commons puts in `content`, one per frame; REST and gRPC share it.

    Tool calls are JSON texts in `content`: each delta as OpenAI writes it, and all calls whole before the end.
    """

    def __init__(self) -> None:
        self._calls: list[tuple[ToolCallStart, list[str]]] = []

    def contents(self, event: StreamEvent) -> Iterator[str]:
        """What `event` adds to the answer."""
        match event:
            case TextDelta(text=text):
                yield text
            case ToolCallStart(index=index, call_id=call_id, name=name):
                self._calls.append((event, []))
                function = {"name": name, "arguments": ""}
                yield _json([{"index": index, "id": call_id, "type": "function", "function": function}])
            case ToolCallDelta(index=index, arguments=arguments):
                self._calls[index][1].append(arguments)
                yield _json([{"index": index, "function": {"arguments": arguments}}])
            case Finished() if self._calls:
                yield self._whole_calls()
            case Started() | ReasoningDelta() | AudioStart() | AudioDelta() | Finished() | Failed():
                return
            case _:
                assert_never(event)

    def _whole_calls(self) -> str:
        calls = [
            {
                "id": start.call_id,
                "type": "function",
                "function": {"name": start.name, "arguments": "".join(pieces) or "{}"},
            }
            for start, pieces in self._calls
        ]
        return _json({"choices": [{"message": {"tool_calls": calls}, "finish_reason": "tool_calls"}]})


class FrameEncoder:
    """Events to server-sent frames: one terminal frame, `is_last` or an error, never both."""

    def __init__(self) -> None:
        self._contents = ContentEncoder()

    def encode(self, event: StreamEvent) -> Iterator[bytes]:
        for content in self._contents.contents(event):
            yield f"{HEAD}{encode_basestring(content)}{MORE}".encode("utf-8", "replace")
        if isinstance(event, Finished):
            yield LAST
        elif isinstance(event, Failed):
            yield error_frame(event.error)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
