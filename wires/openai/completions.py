"""`POST /v1/completions`, the legacy form: a prompt instead of messages, whole or as server-sent events.

The prompt becomes one user message. `echo` is honoured; token arrays, several prompts, `suffix`, `logprobs`, `n` and
`best_of` above 1 are refused by name. Reasoning has no field here and is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from json.encoder import encode_basestring_ascii as json_string
from typing import Any, assert_never

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from gateway.completion import Completion
from gateway.errors import InvalidRequest, Unsupported
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
from gateway.request import ChatRequest, Role, text_message
from wires.base import StreamResponse, gateway_of
from wires.bodies import SampledBody
from wires.chat_answer import usage_body
from wires.openai.errors import KEEPALIVE, WIRE, JsonBody, documented, error_frame, object_schema
from wires.openai.whole import whole_chat

router = APIRouter(tags=["OpenAI"])
ANSWER = object_schema("text_completion", "id", "created", "model", "choices", "usage")


class CompletionBody(SampledBody):
    """The request body; fields that it does not declare are passed on to the provider."""

    model: str = Field(examples=["default"])
    prompt: str | list[str]
    max_tokens: int | None = Field(default=None, ge=1)
    echo: bool | None = None
    best_of: int | None = None
    suffix: str | None = None
    logprobs: int | None = None

    @property
    def text(self) -> str:
        """The one prompt. Raises InvalidRequest or Unsupported for none and for several."""
        if isinstance(self.prompt, str):
            return self.prompt
        if not self.prompt:
            raise InvalidRequest("The prompt is an empty list.", param="prompt")
        if len(self.prompt) > 1:
            raise Unsupported("Only one prompt at a time is supported.", param="prompt")
        return self.prompt[0]


@router.post("/v1/completions", responses=documented(ANSWER, streams=True))
async def create(request: Request, body: CompletionBody) -> Response:
    """Stream a completion, or give it whole."""
    gateway = gateway_of(request)
    chat = parse(body)
    echo = body.text if body.echo else ""
    if body.stream:
        return StreamResponse(
            WIRE,
            lambda: gateway.chat(chat, wire=WIRE.name),
            CompletionEncoder(echo=echo, include_usage=body.include_usage),
            limits=gateway.settings.limits,
            keepalive=KEEPALIVE,
        )
    return JsonBody(completion_body(await whole_chat(gateway, chat), echo))


def parse(body: CompletionBody) -> ChatRequest:
    """The request. Raises InvalidRequest or Unsupported for what cannot be honoured."""
    body.check_n()
    body.check_stream()
    if body.best_of not in (None, 1):
        raise Unsupported("Only best_of = 1 is supported.", param="best_of")
    if body.suffix:
        raise Unsupported("The field 'suffix' is not supported.", param="suffix")
    if body.logprobs is not None:
        raise Unsupported("Log probabilities are not supported.", param="logprobs")
    return ChatRequest(
        model=body.model,
        messages=(text_message(Role.USER, body.text),),
        sampling=body.sampling(body.max_tokens),
        user=body.user,
        extra=body.vendor_fields(),
    )


class CompletionEncoder:
    """Events to `text_completion` frames, closed by `[DONE]`."""

    def __init__(self, *, echo: str, include_usage: bool) -> None:
        self._echo = echo
        self._include_usage = include_usage
        self._head = ""

    def encode(self, event: StreamEvent) -> Iterator[bytes]:
        match event:
            case TextDelta(text=text):
                yield self._piece(text)
            case Started(id=id, model=model, created=created):
                shared = {"id": f"cmpl-{id}", "object": "text_completion", "created": created, "model": model}
                self._head = f'data: {json.dumps(shared, separators=(",", ":"))[:-1]},"choices":'
                if self._echo:
                    yield self._piece(self._echo)
            case ReasoningDelta() | ToolCallStart() | ToolCallDelta() | AudioStart() | AudioDelta():
                return
            case Finished(reason=reason, usage=usage):
                yield self._piece("", f'"{reason}"')
                if self._include_usage:
                    yield f'{self._head}[],"usage":{json.dumps(usage_body(usage))}}}\n\n'.encode()
                yield b"data: [DONE]\n\n"
            case Failed(error=error):
                yield error_frame(error)
            case _:
                assert_never(event)

    def _piece(self, text: str, reason: str = "null") -> bytes:
        end = ',"usage":null}' if self._include_usage else "}"
        choice = f'{{"index":0,"text":{json_string(text)},"logprobs":null,"finish_reason":{reason}}}'
        return f"{self._head}[{choice}]{end}\n\n".encode()


def completion_body(completion: Completion, echo: str) -> dict[str, Any]:
    """A whole answer as `text_completion`."""
    choice = {
        "index": 0,
        "text": echo + completion.text,
        "logprobs": None,
        "finish_reason": str(completion.reason),
    }
    return {
        "id": f"cmpl-{completion.id}",
        "object": "text_completion",
        "created": completion.created,
        "model": completion.model,
        "choices": [choice],
        "usage": usage_body(completion.usage),
    }
