"""TGI's three answer forms, whole and streamed: generate, chat and completion.

Streamed frames are `data:{...}` without a space, as TGI writes them; a failure midway is an error object in the stream.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gateway.completion import Completion
from gateway.errors import GatewayError
from gateway.events import (
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
from wires.base import Encoder
from wires.chat_answer import completion_body, usage_body

DONE = b"data:[DONE]\n\n"
FINGERPRINT = "polywire"
GENERATE_REASONS = {FinishReason.STOP: "eos_token", FinishReason.LENGTH: "length"}


@dataclass(frozen=True, slots=True)
class ChatForm:
    """OpenAI chat, as TGI's Messages API answers it."""

    include_usage: bool = False

    def encoder(self) -> Encoder[bytes]:
        return ChatEncoder(self.include_usage)

    def whole(self, completion: Completion) -> Any:
        return completion_body(completion)


@dataclass(frozen=True, slots=True)
class CompletionForm:
    """OpenAI's legacy completion."""

    def encoder(self) -> Encoder[bytes]:
        return CompletionEncoder()

    def whole(self, completion: Completion) -> Any:
        choice = {"index": 0, "text": completion.text, "logprobs": None, "finish_reason": str(completion.reason)}
        return {
            "id": f"cmpl-{completion.id}",
            "object": "text_completion",
            "created": completion.created,
            "model": completion.model,
            "system_fingerprint": FINGERPRINT,
            "choices": [choice],
            "usage": usage_body(completion.usage),
        }


@dataclass(frozen=True, slots=True)
class GenerateForm:
    """TGI's own `inputs` form; `prefix` is the prompt where the full text was asked for."""

    prefix: str = ""
    details: bool = False

    def encoder(self) -> Encoder[bytes]:
        return GenerateEncoder(self.prefix, self.details)

    def whole(self, completion: Completion) -> Any:
        answer: dict[str, Any] = {"generated_text": self.prefix + completion.text}
        if self.details:
            answer["details"] = _details(completion.reason, completion.usage)
        return [answer]


Form = ChatForm | CompletionForm | GenerateForm


class ChatEncoder:
    """Events to chat chunks; every delta carries its role, as TGI's do."""

    def __init__(self, include_usage: bool) -> None:
        self._include_usage = include_usage
        self._shared: dict[str, Any] = {}

    def encode(self, event: StreamEvent) -> Iterator[bytes]:
        match event:
            case Started():
                self._shared = _shared(event, "chatcmpl", "chat.completion.chunk")
            case TextDelta(text=text):
                yield self._chunk({"content": text})
            case ReasoningDelta(text=text):
                yield self._chunk({"reasoning_content": text})
            case ToolCallStart(index=index, call_id=call_id, name=name):
                function = {"name": name, "arguments": ""}
                call = {"index": index, "id": call_id, "type": "function", "function": function}
                yield self._chunk({"tool_calls": [call]})
            case ToolCallDelta(index=index, arguments=arguments):
                yield self._chunk({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]})
            case Finished(reason=reason, usage=usage):
                yield self._chunk({}, str(reason))
                if self._include_usage:
                    yield _line({**self._shared, "choices": [], "usage": usage_body(usage)})
                yield DONE
            case Failed(error=error):
                yield _line(error_body(error))
            case _:
                return

    def _chunk(self, delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": {"role": "assistant", **delta}, "logprobs": None, "finish_reason": reason}
        return _line({**self._shared, "choices": [choice]})


class CompletionEncoder:
    """Events to `text_completion` chunks."""

    def __init__(self) -> None:
        self._shared: dict[str, Any] = {}

    def encode(self, event: StreamEvent) -> Iterator[bytes]:
        match event:
            case Started():
                self._shared = _shared(event, "cmpl", "text_completion")
            case TextDelta(text=text):
                yield self._chunk(text, None)
            case Finished(reason=reason):
                yield self._chunk("", str(reason))
                yield DONE
            case Failed(error=error):
                yield _line(error_body(error))
            case _:
                return

    def _chunk(self, text: str, reason: str | None) -> bytes:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
        return _line({**self._shared, "choices": [choice]})


class GenerateEncoder:
    """Events to generate events. The last one has the whole text and a special, empty token; `index` counts from 1."""

    def __init__(self, prefix: str, details: bool) -> None:
        self._details = details
        self._text = [prefix]
        self._index = 0

    def encode(self, event: StreamEvent) -> Iterator[bytes]:
        match event:
            case TextDelta(text=text):
                self._text.append(text)
                yield self._event(text, special=False)
            case Finished(reason=reason, usage=usage):
                details = _details(reason, usage) if self._details else None
                yield self._event("", special=True, generated_text="".join(self._text), details=details)
            case Failed(error=error):
                yield _line(error_body(error))
            case _:
                return

    def _event(self, text: str, *, special: bool, generated_text: str | None = None, details: Any = None) -> bytes:
        self._index += 1
        token = {"id": 0, "text": text, "logprob": 0.0, "special": special}
        return _line({"index": self._index, "token": token, "generated_text": generated_text, "details": details})


def error_type(error: GatewayError) -> str:
    """TGI's word for an error."""
    if error.status == 429:
        return "overloaded"
    return "validation" if error.status < 500 else "generation"


def error_body(error: GatewayError) -> dict[str, Any]:
    """TGI's error object, before a stream and inside one."""
    return {"error": error.message, "error_type": error_type(error)}


def _shared(event: Started, prefix: str, kind: str) -> dict[str, Any]:
    return {
        "id": f"{prefix}-{event.id}",
        "object": kind,
        "created": event.created,
        "model": event.model,
        "system_fingerprint": FINGERPRINT,
    }


def _details(reason: FinishReason, usage: Usage | None) -> dict[str, Any]:
    usage = usage or Usage()
    return {
        "finish_reason": GENERATE_REASONS.get(reason, "stop_sequence"),
        "generated_tokens": usage.output_tokens,
        "input_length": usage.input_tokens,
        "seed": None,
    }


def _line(value: dict[str, Any]) -> bytes:
    return f"data:{json.dumps(value, separators=(',', ':'))}\n\n".encode()
