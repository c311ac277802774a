"""`POST /v1/chat/completions`, whole or as server-sent events that end in `[DONE]`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from json.encoder import encode_basestring_ascii as json_string
from typing import Any, assert_never

from fastapi import APIRouter, Request
from starlette.responses import Response

from gateway.events import (
    AudioDelta,
    AudioStart,
    Failed,
    Finished,
    FinishReason,
    ReasoningDelta,
    Started,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from wires.base import StreamResponse, gateway_of
from wires.chat_answer import completion_body, usage_body
from wires.chat_body import ChatBody, parse
from wires.openai.errors import KEEPALIVE, WIRE, JsonBody, documented, error_frame, object_schema
from wires.openai.whole import whole_chat

router = APIRouter(tags=["OpenAI"])
ANSWER = object_schema("chat.completion", "id", "created", "model", "choices", "usage")


@router.post("/v1/chat/completions", responses=documented(ANSWER, streams=True))
async def create(request: Request, body: ChatBody) -> Response:
    """Stream an answer, or give it whole."""
    gateway = gateway_of(request)
    chat = parse(body)
    if body.stream:
        return StreamResponse(
            WIRE,
            lambda: gateway.chat(chat, wire=WIRE.name),
            ChunkEncoder(include_usage=body.include_usage),
            limits=gateway.settings.limits,
            keepalive=KEEPALIVE,
        )
    return JsonBody(completion_body(await whole_chat(gateway, chat)))


class ChunkEncoder:
    """Events to `chat.completion.chunk` frames. The part that all chunks share is built once per stream."""

    def __init__(self, *, include_usage: bool) -> None:
        self._include_usage = include_usage
        self._text = self._head = self._tail = ""
        self._calls_without_arguments: set[int] = set()

    def encode(self, event: StreamEvent) -> Iterable[bytes]:
        # Not a generator, which costs as much again as a token's frame.
        match event:
            case TextDelta(text=text):
                return (f"{self._text}{json_string(text)}{self._tail}".encode(),)
            case Started():
                self._start(event)
                return (self._chunk('{"role":"assistant","content":""}'),)
            case ToolCallStart(index=index, call_id=call_id, name=name):
                self._calls_without_arguments.add(index)
                function = {"name": name, "arguments": ""}
                return (self._call({"index": index, "id": call_id, "type": "function", "function": function}),)
            case AudioStart() | AudioDelta() | ToolCallDelta(arguments="") | ReasoningDelta(text=""):
                return ()
            case ReasoningDelta(text=text):
                return (self._chunk(f'{{"reasoning_content":{json_string(text)}}}'),)
            case ToolCallDelta(index=index, arguments=arguments):
                self._calls_without_arguments.discard(index)
                return (self._call({"index": index, "function": {"arguments": arguments}}),)
            case Finished(reason=reason, usage=usage):
                return self._finish(reason, usage)
            case Failed(error=error):
                return (error_frame(error),)
            case _:
                assert_never(event)

    def _start(self, event: Started) -> None:
        made = f'"object":"chat.completion.chunk","created":{event.created},"model":{json_string(event.model)}'
        self._head = f'data: {{"id":"chatcmpl-{event.id}",{made},"choices":'
        self._text = f'{self._head}[{{"index":0,"delta":{{"content":'
        end = ',"usage":null}\n\n' if self._include_usage else "}\n\n"
        self._tail = f'}},"finish_reason":null}}]{end}'

    def _finish(self, reason: FinishReason, usage: Usage | None) -> Iterator[bytes]:
        # A client joins the pieces of a call and reads JSON: nothing at all is not an object.
        for index in sorted(self._calls_without_arguments):
            yield self._call({"index": index, "function": {"arguments": "{}"}})
        yield self._chunk("{}", f'"{reason}"')
        if self._include_usage:
            yield self._usage(usage)
        yield b"data: [DONE]\n\n"

    def _chunk(self, delta: str, reason: str = "null") -> bytes:
        end = ',"usage":null}' if self._include_usage else "}"
        return f'{self._head}[{{"index":0,"delta":{delta},"finish_reason":{reason}}}]{end}\n\n'.encode()

    def _call(self, call: dict[str, Any]) -> bytes:
        return self._chunk(json.dumps({"tool_calls": [call]}, separators=(",", ":")))

    def _usage(self, usage: Usage | None) -> bytes:
        return f'{self._head}[],"usage":{json.dumps(usage_body(usage))}}}\n\n'.encode()
