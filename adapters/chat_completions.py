"""OpenAI's chat-completions dialect, without I/O: request -> body, stream payloads -> events.

Shared by every adapter whose upstream speaks it (OpenAI and compatible servers, SageMaker containers, the embedded
model). Only the fields that are used are decoded. Quirks that are met here: chunks without choices, null content,
`reasoning` beside `reasoning_content`, tool calls without an index, usage in the last or in a later chunk, an error
object inside a 200 stream, `eos_token` as a finish reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from adapters.http import error_for_status
from gateway.config import ProviderRow
from gateway.errors import GatewayError, RateLimited, Truncated, UpstreamError
from gateway.events import (
    Delta,
    Finished,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from gateway.request import ChatRequest, Image, Message, Part, Reasoning, Text, Tool, ToolCall, ToolResult

FINISH_REASONS = {
    "stop": FinishReason.STOP,
    "eos_token": FinishReason.STOP,
    "eos": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "end_turn": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "tool_calls": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
    "content_filter": FinishReason.CONTENT_FILTER,
}
DONE = b"[DONE]"
RATE_LIMIT_CODES = frozenset({"rate_limit_exceeded", "insufficient_quota", "rate_limit_error"})


def chat_body(request: ChatRequest, *, max_tokens_field: str = "max_tokens") -> dict[str, Any]:
    """The body of a streaming `POST /chat/completions`. Usage is always asked for: accounting needs it."""
    sampling = request.sampling
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [wire_message for message in request.messages for wire_message in _messages(message)],
        "stream": True,
        "stream_options": {"include_usage": True},
        max_tokens_field: sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "stop": list(sampling.stop) or None,
        "seed": sampling.seed,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "response_format": request.response_format,
        "reasoning_effort": request.reasoning_effort,
        "user": request.user,
    }
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        body["tool_choice"] = _tool_choice(request.tool_choice)
        body["parallel_tool_calls"] = request.parallel_tool_calls
    body.update(request.extra)
    return {key: value for key, value in body.items() if value is not None}


def _messages(message: Message) -> Iterable[dict[str, Any]]:
    """OpenAI wants one message per tool result, and an assistant's calls beside its text."""
    results = [part for part in message.parts if isinstance(part, ToolResult)]
    for result in results:
        yield {"role": "tool", "tool_call_id": result.call_id, "content": result.text}
    rest = [part for part in message.parts if not isinstance(part, ToolResult | Reasoning)]
    if not rest and results:
        return
    calls = [part for part in rest if isinstance(part, ToolCall)]
    body: dict[str, Any] = {"role": str(message.role), "content": _content(rest)}
    if calls:
        body["tool_calls"] = [
            {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
    yield body


def _content(parts: Sequence[Part]) -> str | list[dict[str, Any]] | None:
    """A plain string where that says it all, since not every server takes a list of parts."""
    if any(isinstance(part, Image) for part in parts):
        return [wire_part for part in parts if (wire_part := _content_part(part)) is not None]
    texts = [part.text for part in parts if isinstance(part, Text)]
    return "".join(texts) if texts or not parts else None


def _content_part(part: Part) -> dict[str, Any] | None:
    match part:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Image(url=url, detail=detail):
            return {"type": "image_url", "image_url": {"url": url} | ({"detail": detail} if detail else {})}
        case _:
            return None


def _tool(tool: Tool) -> dict[str, Any]:
    optional = {"description": tool.description, "parameters": tool.parameters, "strict": tool.strict}
    given = {key: value for key, value in optional.items() if value is not None}
    return {"type": "function", "function": {"name": tool.name, **given}}


def _tool_choice(choice: str | None) -> Any:
    if choice in (None, "auto", "none", "required"):
        return choice
    return {"type": "function", "function": {"name": choice}}


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: Any = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _OutputDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _OutputDetails | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Chunk).decode


class ChatCompletionDecoder:
    """The payloads of one stream, in order, to deltas; `finish` gives the terminal event.

    A payload is what stands after `data:`, or one JSON line.
    """

    def __init__(self, row: ProviderRow) -> None:
        self._row = row
        self._reason: FinishReason | None = None
        self._usage: Usage | None = None
        self._calls: list[str] = []
        self._current = -1
        self._by_index: dict[int, int] = {}
        self.done = False
        """Whether `[DONE]` was seen: nothing after it counts."""

    def feed(self, payload: bytes) -> list[Delta]:
        """The deltas of one payload. Raises GatewayError for an error object and for what is not JSON."""
        if payload.startswith(DONE):
            self.done = True
            return []
        try:
            chunk = _decode(payload)
        except msgspec.DecodeError as error:
            raise UpstreamError(
                f"Provider {self._row.name!r} sent a chunk that is not a chat completion.", provider=self._row.name
            ) from error
        if chunk.error:
            raise stream_error(self._row, chunk.error)
        if chunk.usage is not None:
            self._usage = _usage(chunk.usage)
        return self._deltas(chunk.choices[0]) if chunk.choices else []

    def finish(self) -> Finished:
        """The terminal event, once the body has ended or `[DONE]` was seen. Raises Truncated without a marker."""
        if self._reason is None and not self.done:
            raise Truncated(
                f"Provider {self._row.name!r} ended its stream without a finish reason; the answer is incomplete.",
                provider=self._row.name,
            )
        # Some servers say `stop` although the model called tools.
        reason = self._reason or FinishReason.STOP
        if self._calls and reason is FinishReason.STOP:
            reason = FinishReason.TOOL_CALLS
        return Finished(reason, self._usage)

    def _deltas(self, choice: _Choice) -> list[Delta]:
        delta = choice.delta or choice.message
        deltas: list[Delta] = []
        if delta is not None:
            reasoning = delta.reasoning_content or delta.reasoning
            if isinstance(reasoning, str) and reasoning:
                deltas.append(ReasoningDelta(reasoning))
            if text := delta.content or delta.refusal:
                deltas.append(TextDelta(text))
            for call in delta.tool_calls or ():
                deltas.extend(self._tool_call(call))
        if choice.finish_reason == "error":
            # LMI's way to say that the rest of the answer will not come.
            raise stream_error(self._row, None)
        if choice.finish_reason:
            self._reason = FINISH_REASONS.get(choice.finish_reason, FinishReason.STOP)
        return deltas

    def _tool_call(self, call: _ToolCall) -> Iterable[Delta]:
        """A call is told by its index; without one, by a new id; without either it goes on with the last call."""
        function = call.function or _Function()
        position = self._position(call)
        if position is None:
            position = len(self._calls)
            self._calls.append(call.id or f"call_{position}")
            if call.index is not None:
                self._by_index[call.index] = position
            yield ToolCallStart(position, self._calls[position], function.name or "")
        self._current = position
        if function.arguments:
            yield ToolCallDelta(position, function.arguments)

    def _position(self, call: _ToolCall) -> int | None:
        if call.id and call.id in self._calls:
            return self._calls.index(call.id)
        if call.index is not None:
            known = self._by_index.get(call.index)
            # Servers that number every call 0 give each its own id.
            return None if call.id and known is not None else known
        return None if call.id or self._current < 0 else self._current


def _usage(usage: _Usage) -> Usage:
    prompt, output = usage.prompt_tokens_details, usage.completion_tokens_details
    return Usage(
        input_tokens=usage.prompt_tokens or 0,
        output_tokens=usage.completion_tokens or 0,
        cached_tokens=(prompt.cached_tokens if prompt else None) or 0,
        reasoning_tokens=(output.reasoning_tokens if output else None) or 0,
    )


def stream_error(row: ProviderRow, error: Any) -> GatewayError:
    """The GatewayError for an `error` object inside a 200 stream: by its code, which may be a status."""
    if not isinstance(error, dict):
        return UpstreamError(f"Provider {row.name!r} reported an error.", provider=row.name)
    message = str(error.get("message") or "")
    code = error.get("code") or error.get("type")
    if isinstance(code, int) and 400 <= code < 600:
        return error_for_status(row, code, message)
    if isinstance(code, str) and code.isdigit():
        return error_for_status(row, int(code), message)
    if code in RATE_LIMIT_CODES:
        return RateLimited(f"Provider {row.name!r} is limiting requests.", provider=row.name)
    said = f": {row.scrub(message)[:300]}" if message else "."
    return UpstreamError(f"Provider {row.name!r} reported an error{said}", provider=row.name)
