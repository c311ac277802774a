"""A stream folded into one whole answer, for the wires' non-streaming forms."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from gateway.errors import InternalError
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


@dataclass(frozen=True, slots=True)
class CompletedToolCall:
    """A tool call with its arguments joined: JSON text, `{}` when there were none."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole answer."""

    id: str
    model: str
    created: int
    text: str
    reasoning: str
    tool_calls: tuple[CompletedToolCall, ...]
    reason: FinishReason
    usage: Usage | None


async def collect(events: AsyncIterator[StreamEvent]) -> Completion:
    """Fold a stream of text, reasoning and tool calls into one answer. Raises GatewayError if the stream failed."""
    started = Started("", "", 0)
    text: list[str] = []
    reasoning: list[str] = []
    calls: list[tuple[ToolCallStart, list[str]]] = []
    async for event in events:
        match event:
            case Started():
                started = event
            case TextDelta():
                text.append(event.text)
            case ReasoningDelta():
                reasoning.append(event.text)
            case ToolCallStart():
                calls.append((event, []))
            case ToolCallDelta():
                calls[event.index][1].append(event.arguments)
            case Failed():
                raise event.error
            case Finished():
                return Completion(
                    id=started.id,
                    model=started.model,
                    created=started.created,
                    text="".join(text),
                    reasoning="".join(reasoning),
                    tool_calls=tuple(
                        CompletedToolCall(start.call_id, start.name, "".join(pieces) or "{}") for start, pieces in calls
                    ),
                    reason=event.reason,
                    usage=event.usage,
                )
            case AudioStart() | AudioDelta():
                pass
    raise InternalError("The stream ended without a terminal event.")
