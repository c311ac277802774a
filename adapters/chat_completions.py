"""OpenAI's chat-completions dialect, without I/O: stream payloads -> events.

Shared by every adapter whose upstream speaks it (OpenAI and compatible servers, SageMaker containers, the embedded
model). Only the fields that are used are decoded. Quirks that are met here: chunks without choices, null content,
content in parts, several choices, `reasoning` beside `reasoning_content`, usage in the last or in a later chunk, error
objects of four shapes inside a 200 stream, TGI's words for finish reasons. Tool calls: adapters/chat_tool_calls.py.
"""

from __future__ import annotations

from typing import Any

import msgspec

from adapters.chat_body import chat_body
from adapters.chat_tool_calls import CallPiece, ToolCalls
from adapters.http_errors import LONGEST_QUOTE, error_for_status
from gateway.config import ProviderRow
from gateway.errors import GatewayError, Truncated, UpstreamError
from gateway.events import Delta, Finished, FinishReason, ReasoningDelta, TextDelta, Usage

__all__ = ["ChatCompletionDecoder", "chat_body", "stream_error"]

FINISH_REASONS = {
    "stop": FinishReason.STOP,
    "eos_token": FinishReason.STOP,
    "eos": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "end_turn": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "model_length": FinishReason.LENGTH,
    "tool_calls": FinishReason.TOOL_CALLS,
    "tool_use": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
    "content_filter": FinishReason.CONTENT_FILTER,
}
FAILURES = frozenset({"error", "abort", "insufficient_system_resource"})
"""Finish reasons that say the answer broke off: LMI and OpenRouter, vLLM, DeepSeek."""

DONE = b"[DONE]"
ERROR_STATUS = {
    "invalid_request_error": 400,
    "BadRequestError": 400,
    "validation": 400,
    "context_length_exceeded": 400,
    "exceed_context_size_error": 400,
    "content_filter": 400,
    "content_policy_violation": 400,
    "invalid_api_key": 401,
    "authentication_error": 401,
    "permission_error": 403,
    "model_not_found": 404,
    "not_found_error": 404,
    "NotFoundError": 404,
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "insufficient_quota": 429,
    "overloaded": 503,
    "overloaded_error": 503,
    "unavailable_error": 503,
}
"""The `code` or `type` of an error inside a stream, where there is no status line: OpenAI, vLLM, TGI, llama.cpp."""


class _ContentPart(msgspec.Struct, gc=False):
    text: str | None = None


class _Delta(msgspec.Struct, gc=False):
    content: str | list[_ContentPart] | None = None
    reasoning_content: str | None = None
    reasoning: Any = None
    refusal: str | None = None
    tool_calls: list[CallPiece] | CallPiece | None = None


class _Choice(msgspec.Struct, gc=False):
    index: int | None = None
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None


class _PromptDetails(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class _OutputDetails(msgspec.Struct, gc=False):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _OutputDetails | None = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None
    object: Any = None


_decode = msgspec.json.Decoder(_Chunk).decode


class ChatCompletionDecoder:
    """The payloads of one stream, in order, to deltas; `finish` gives the terminal event.

    A payload is what stands after `data:`, or one JSON line.
    """

    def __init__(self, row: ProviderRow) -> None:
        self._row = row
        self._reason: FinishReason | None = None
        self._usage: Usage | None = None
        self._calls = ToolCalls()
        self.done = False
        """Whether `[DONE]` was seen: nothing after it counts."""

    def feed(self, payload: bytes) -> list[Delta]:
        """The deltas of one payload. Raises GatewayError for an error object and for what is not a chunk."""
        if self.done:
            return []
        if payload.startswith(DONE):
            self.done = True
            return []
        try:
            chunk = _decode(payload)
        except (msgspec.DecodeError, RecursionError) as error:
            raise UpstreamError(
                f"Provider {self._row.name!r} sent a chunk that is not a chat completion.", provider=self._row.name
            ) from error
        if chunk.error or chunk.object == "error":
            raise stream_error(self._row, msgspec.json.decode(payload))
        if chunk.usage is not None:
            self._usage = _usage(chunk.usage)
        deltas: list[Delta] = []
        for choice in chunk.choices or ():
            # The gateway asks for one answer; a second one must not be mixed into it.
            if not choice.index:
                self._choice(choice, deltas)
        return deltas

    def finish(self) -> Finished:
        """The terminal event, once the body has ended or `[DONE]` was seen. Raises Truncated without a marker."""
        if self._reason is None and not self.done:
            raise Truncated(
                f"Provider {self._row.name!r} ended its answer without a finish reason; the answer is incomplete.",
                provider=self._row.name,
            )
        # Some servers say `stop` although the model called tools.
        reason = self._reason or FinishReason.STOP
        if self._calls and reason is FinishReason.STOP:
            reason = FinishReason.TOOL_CALLS
        return Finished(reason, self._usage)

    def _choice(self, choice: _Choice, deltas: list[Delta]) -> None:
        delta = choice.delta or choice.message
        if delta is not None:
            reasoning = delta.reasoning_content or delta.reasoning
            if reasoning and isinstance(reasoning, str):
                deltas.append(ReasoningDelta(reasoning))
            content = delta.content
            if text := (_joined(content) if isinstance(content, list) else content) or delta.refusal:
                deltas.append(TextDelta(text))
            if delta.tool_calls:
                pieces = delta.tool_calls if isinstance(delta.tool_calls, list) else [delta.tool_calls]
                deltas.extend(self._calls.feed(pieces, whole=choice.delta is None))
        if choice.finish_reason:
            if choice.finish_reason in FAILURES:
                raise UpstreamError(f"Provider {self._row.name!r} broke off its answer.", provider=self._row.name)
            self._reason = FINISH_REASONS.get(choice.finish_reason, FinishReason.STOP)


def stream_error(row: ProviderRow, value: Any) -> GatewayError:
    """The GatewayError for an error inside a 200 stream: by its code, which may be a status, or its type.

    `value` is the payload or the `error` in it: `{"error": {...}}`, `{"error": "...", "error_type": "..."}`,
    `{"object": "error", ...}` or the bare `{"message", "code", "type"}`.
    """
    error = value.get("error") or value if isinstance(value, dict) else value
    fields = error if isinstance(error, dict) else value if isinstance(value, dict) else {}
    message = error if isinstance(error, str) else fields.get("message")
    words = [fields.get(key) for key in ("code", "http_status_code", "type", "error_type")]
    status = next((status for word in words if (status := _status(word))), None)
    code = next((word for word in words if isinstance(word, str) and not word.isdigit()), None)
    text = message if isinstance(message, str) else ""
    if status is not None:
        return error_for_status(row, status, text, code=code)
    said = f": {row.scrub(text)[:LONGEST_QUOTE]}" if text else "."
    return UpstreamError(f"Provider {row.name!r} reported an error{said}", provider=row.name)


def _status(word: object) -> int | None:
    if isinstance(word, str):
        word = int(word) if word.isdecimal() and len(word) == 3 else ERROR_STATUS.get(word)
    return word if isinstance(word, int) and 400 <= word < 600 else None


def _joined(parts: list[_ContentPart]) -> str:
    return "".join(part.text or "" for part in parts)


def _usage(usage: _Usage) -> Usage:
    prompt, output = usage.prompt_tokens_details, usage.completion_tokens_details
    return Usage(
        input_tokens=usage.prompt_tokens or 0,
        output_tokens=usage.completion_tokens or 0,
        cached_tokens=(prompt.cached_tokens if prompt else None) or 0,
        reasoning_tokens=(output.reasoning_tokens if output else None) or 0,
    )
