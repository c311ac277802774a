"""Bedrock's ConverseStream answer, without I/O: the frames of one stream, in order -> deltas and the terminal event.

Order of a stream: messageStart ([contentBlockStart] contentBlockDelta* contentBlockStop)* messageStop metadata. Usage
comes after messageStop, so the terminal event is known only at the body's end; without messageStop it was truncated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from adapters.converse import REDACTED
from adapters.event_stream import Frame
from gateway.errors import Truncated, UpstreamError
from gateway.events import Delta, Finished, FinishReason, ReasoningDelta, TextDelta, ToolCallDelta, ToolCallStart, Usage

FINISH_REASONS = {
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "tool_use": FinishReason.TOOL_CALLS,
    "guardrail_intervened": FinishReason.CONTENT_FILTER,
    "content_filtered": FinishReason.CONTENT_FILTER,
}


class ConverseDecoder:
    """`feed` every event frame, then `finish`. Blocks may interleave: everything is kept by contentBlockIndex."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._calls: dict[int, int] = {}
        self._without_arguments: set[int] = set()
        self._signatures: dict[int, str] = {}
        self._reason: FinishReason | None = None
        self._usage: Usage | None = None

    def feed(self, frame: Frame) -> list[Delta]:
        """The deltas of one event frame; unknown events count for nothing. Raises UpstreamError."""
        match frame.name:
            case "contentBlockDelta":
                body = self._body(frame)
                return self._delta(_index(body), _mapping(body, "delta"))
            case "contentBlockStart":
                body = self._body(frame)
                return self._start(_index(body), _mapping(_mapping(body, "start"), "toolUse"))
            case "contentBlockStop":
                return self._close(_index(self._body(frame)))
            case "messageStop":
                self._reason = self._finish_reason(self._body(frame).get("stopReason"))
                return [delta for index in sorted({*self._signatures, *self._calls}) for delta in self._close(index)]
            case "metadata":
                self._usage = _usage(_mapping(self._body(frame), "usage"))
        return []

    def finish(self) -> Finished:
        """The terminal event at the body's end. Raises Truncated when there was no messageStop."""
        if self._reason is None:
            raise Truncated(
                f"Provider {self._provider!r} ended its stream without messageStop; the answer is incomplete.",
                provider=self._provider,
            )
        return Finished(self._reason, self._usage)

    def _body(self, frame: Frame) -> Mapping[str, Any]:
        try:
            body = msgspec.json.decode(frame.payload)
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._fault(f"a {frame.name} event that is not JSON") from error
        if not isinstance(body, dict):
            raise self._fault(f"a {frame.name} event that is not a JSON object")
        return body

    def _start(self, index: int, tool: Mapping[str, Any]) -> list[Delta]:
        if not tool:
            return []
        position = self._calls[index] = len(self._calls)
        self._without_arguments.add(index)
        return [ToolCallStart(position, str(tool.get("toolUseId", "")), str(tool.get("name", "")))]

    def _delta(self, index: int, delta: Mapping[str, Any]) -> list[Delta]:
        match delta:
            case {"text": str(text)}:
                return [TextDelta(text)] if text else []
            case {"toolUse": {"input": str(piece)}}:
                return self._arguments(index, piece)
            case {"reasoningContent": {"text": str(text)}}:
                return [ReasoningDelta(text)] if text else []
            case {"reasoningContent": {"signature": str(signature)}}:
                self._signatures[index] = self._signatures.get(index, "") + signature
            case {"reasoningContent": {"redactedContent": str(blob)}}:
                return [ReasoningDelta("", REDACTED + blob)]
        return []

    def _arguments(self, index: int, piece: str) -> list[Delta]:
        if index not in self._calls:
            raise self._fault("tool arguments before the tool call they belong to")
        if not piece:
            return []
        self._without_arguments.discard(index)
        return [ToolCallDelta(self._calls[index], piece)]

    def _close(self, index: int) -> list[Delta]:
        """What a block still owes at its end: its signature whole, and `{}` for a call without arguments."""
        deltas: list[Delta] = []
        if signature := self._signatures.pop(index, ""):
            deltas.append(ReasoningDelta("", signature))
        if index in self._without_arguments:
            self._without_arguments.discard(index)
            deltas.append(ToolCallDelta(self._calls[index], "{}"))
        return deltas

    def _finish_reason(self, word: object) -> FinishReason:
        if reason := FINISH_REASONS.get(str(word)):
            return reason
        # malformed_model_output, malformed_tool_use, and what no version of this table knew: never an invented `stop`.
        raise self._fault(f"the stop reason {str(word)[:64]!r}, so the answer is not usable")

    def _fault(self, what: str) -> UpstreamError:
        return UpstreamError(f"Provider {self._provider!r} sent {what}.", provider=self._provider)


def _index(body: Mapping[str, Any]) -> int:
    index = body.get("contentBlockIndex")
    return index if isinstance(index, int) else 0


def _mapping(body: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = body.get(key)
    return value if isinstance(value, dict) else {}


def _usage(usage: Mapping[str, Any]) -> Usage | None:
    if not usage:
        return None
    cached, written = _count(usage, "cacheReadInputTokens"), _count(usage, "cacheWriteInputTokens")
    # Converse counts cached tokens beside inputTokens; `Usage.input_tokens` holds all of them, as OpenAI's does.
    total = _count(usage, "inputTokens") + cached + written
    return Usage(input_tokens=total, output_tokens=_count(usage, "outputTokens"), cached_tokens=cached)


def _count(usage: Mapping[str, Any], key: str) -> int:
    value = usage.get(key)
    return value if isinstance(value, int) else 0
