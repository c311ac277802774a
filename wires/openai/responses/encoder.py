"""Events -> the server-sent events of the Responses API, and the response object as it stands.

Every frame has the next `sequence_number`, from 0, and the same events always give the same frames: so a response that
was written down is resumed by encoding it again and leaving out what the client has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from json.encoder import encode_basestring_ascii as json_string
from typing import Any, assert_never

from gateway.errors import GatewayError
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
from wires.openai.responses.output import CallItem, Event, MessageItem, OutputItem, ReasoningItem

TEXT_DELTA = "response.output_text.delta"
INCOMPLETE = {FinishReason.LENGTH: "max_output_tokens", FinishReason.CONTENT_FILTER: "content_filter"}


class ResponseEncoder:
    """One response. `template` is what its object repeats of the request; frames up to `after` are left out."""

    def __init__(self, template: Mapping[str, Any], *, encrypted: bool = False, after: int = -1) -> None:
        self._template = template
        self._summary = bool(template["reasoning"]["summary"])
        self._encrypted = encrypted
        self._after = after
        self._sequence = 0
        self._started = Started("", "", 0)
        self._items: list[OutputItem] = []
        self._statuses: list[str] = []
        self._calls: list[CallItem] = []
        self._open: list[OutputItem] = []
        self._text_middle = ""
        self._state: dict[str, Any] = {"status": "in_progress"}

    def encode(self, event: StreamEvent) -> Iterator[bytes]:
        match event:
            case TextDelta(text=text):
                yield from self._write(text)
            case ReasoningDelta(text=text, signature=proof):
                yield from self._think(text, proof)
            case ToolCallStart(call_id=call_id, name=name):
                call = CallItem(self._started.id, len(self._items), call_id, name)
                self._calls.append(call)
                yield from self._begin(call)
            case ToolCallDelta(index=index, arguments=arguments):
                yield from self._frames(self._calls[index].add(arguments))
            case Started():
                self._started = event
                for name in ("response.created", "response.in_progress"):
                    yield from self._frames([{"type": name, "response": self.response()}])
            case AudioStart() | AudioDelta():
                return
            case Finished(reason=reason, usage=usage):
                yield from self._finish(reason, usage)
            case Failed(error=error):
                yield from self._end("failed", "failed", error=error_object(error))
            case _:
                assert_never(event)

    def response(self) -> dict[str, Any]:
        """The response object after the events so far."""
        unfinished = "in_progress" if self._state["status"] == "in_progress" else "incomplete"
        empty: dict[str, Any] = {"error": None, "incomplete_details": None, "usage": None}
        return {
            "id": f"resp_{self._started.id}",
            **self._template,
            "created_at": self._started.created,
            "model": self._started.model,
            **empty,
            **self._state,
            "output": [
                item.body(unfinished if item in self._open else status)
                for item, status in zip(self._items, self._statuses, strict=True)
            ],
        }

    def _write(self, text: str) -> Iterator[bytes]:
        if not self._open or not isinstance(self._open[-1], MessageItem):
            message = MessageItem(self._started.id, len(self._items))
            yield from self._begin(message)
            self._text_middle = f'{json.dumps(message.place, separators=(",", ":"))[1:-1]},"logprobs":[],"delta":'
        else:
            message = self._open[-1]
        message.add(text)
        number = self._sequence
        self._sequence += 1
        if number > self._after:
            yield (
                f'event: {TEXT_DELTA}\ndata: {{"type":"{TEXT_DELTA}","sequence_number":{number},'
                f"{self._text_middle}{json_string(text)}}}\n\n"
            ).encode()

    def _think(self, text: str, proof: str | None) -> Iterator[bytes]:
        last = self._open[-1] if self._open else None
        if not isinstance(last, ReasoningItem):
            last = ReasoningItem(self._started.id, len(self._items), summary=self._summary, encrypted=self._encrypted)
            yield from self._begin(last)
        yield from self._frames(last.add(text, proof))

    def _begin(self, item: OutputItem) -> Iterator[bytes]:
        """Open `item`. Text and thinking end where something else begins; calls may be written side by side."""
        for other in [other for other in self._open if not isinstance(other, CallItem)]:
            yield from self._close(other, "completed")
        self._items.append(item)
        self._statuses.append("in_progress")
        self._open.append(item)
        yield from self._frames(item.opened())

    def _close(self, item: OutputItem, status: str) -> Iterator[bytes]:
        self._open.remove(item)
        self._statuses[item.index] = status
        yield from self._frames(item.closed(status))

    def _finish(self, reason: FinishReason, usage: Usage | None) -> Iterator[bytes]:
        if reason is FinishReason.CANCELLED:
            yield from self._end("incomplete", "cancelled")
            return
        incomplete = INCOMPLETE.get(reason)
        status = "incomplete" if incomplete else "completed"
        for item in tuple(self._open):
            yield from self._close(item, status)
        details = {"reason": incomplete} if incomplete else None
        yield from self._end(status, status, usage=usage_object(usage or Usage()), incomplete_details=details)

    def _end(self, name: str, status: str, **state: Any) -> Iterator[bytes]:
        self._state = {"status": status, **state}
        yield from self._frames([{"type": f"response.{name}", "response": self.response()}])

    def _frames(self, events: Iterator[Event] | list[Event]) -> Iterator[bytes]:
        for event in events:
            number = self._sequence
            self._sequence += 1
            if number > self._after:
                body = {"type": event["type"], "sequence_number": number, **event}
                yield f"event: {event['type']}\ndata: {json.dumps(body, separators=(',', ':'))}\n\n".encode()


def usage_object(usage: Usage) -> dict[str, Any]:
    """The Responses API's usage; zeros where the provider did not count."""
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


def error_object(error: GatewayError) -> dict[str, Any]:
    """`response.error`, whose codes are a closed list."""
    code = "server_error" if error.status >= 500 else "invalid_prompt"
    if error.status == 429:
        code = "rate_limit_exceeded"
    return {"code": code, "message": error.message}
