"""One response: the events of a stream become its items, parts and deltas, in the protocol's order, and its one end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.errors import GatewayError
from gateway.events import (
    AudioDelta,
    Failed,
    Finished,
    FinishReason,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from gateway.heard import HeardText
from wires.openai.realtime.configuration import MostTokens
from wires.openai.realtime.conversation import Conversation
from wires.openai.realtime.formats import WireFormat, encode, rate_of
from wires.openai.realtime.items import Item, Part, Spoken
from wires.openai.realtime.outgoing import Outgoing, error_body, new_id
from wires.openai.realtime.playback import Playback


@dataclass(frozen=True, slots=True)
class ResponseConfig:
    """What was asked for, with the session's values where the response had none."""

    modality: str
    format: WireFormat
    voice: str
    max_output_tokens: MostTokens
    metadata: Mapping[str, str] | None


@dataclass(slots=True)
class Response:
    """Says everything about one response. `conversation` None: out of band, its items belong to no conversation."""

    config: ResponseConfig
    out: Outgoing
    conversation: Conversation | None
    conversation_id: str
    playback: Playback
    id: str = field(default_factory=lambda: new_id("resp"))
    status: str = "in_progress"
    status_details: dict[str, Any] | None = None
    usage: Usage | None = None
    heard: HeardText = field(default_factory=HeardText)
    output: list[Item] = field(default_factory=list)
    awaiting: set[str] = field(default_factory=set)
    _message: Item | None = None
    _calls: dict[int, Item] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        return self.status != "in_progress"

    @property
    def speaks(self) -> bool:
        return self.config.modality == "audio"

    def begin(self) -> None:
        """Say that the response exists."""
        self.out.say("response.created", response=self.body())

    def feed(self, event: StreamEvent, now: float) -> None:
        """The next event of the stream behind the response."""
        match event:
            case TextDelta(text=text):
                self._text(text)
            case AudioDelta(data=data):
                self._audio(data, now)
            case ToolCallStart(index=index, call_id=call_id, name=name):
                call = Item("function_call", status="in_progress", call_id=call_id or new_id("call"), name=name)
                self._calls[index] = call
                self._open(call)
            case ToolCallDelta(index=index, arguments=arguments):
                self._arguments(self._calls[index], arguments)
            case Finished(reason=reason, usage=usage):
                self.usage = usage
                self.end(*OUTCOMES[reason])
            case Failed(error=error):
                self.fail(error)
            case _:
                # Reasoning is not part of the protocol; `Started` and `AudioStart` say nothing that is not known.
                return

    def fail(self, error: GatewayError) -> None:
        """End the response by an error."""
        self.end("failed", {"type": "failed", "error": error_body(error)})

    def end(self, status: str, details: dict[str, Any] | None, heard: float | None = None) -> None:
        """Close what is open and say the end. Of a spoken answer that is cut off the listener heard `heard` seconds."""
        if self.is_over:
            return
        self.status, self.status_details = status, details
        whole = status == "completed"
        broken = status in ("cancelled", "failed")
        if broken and self._message is not None and (spoken := self._message.parts[0].spoken) is not None:
            spoken.cut = spoken.sent if heard is None else heard
        for index, item in enumerate(self.output):
            item.status = "completed" if whole else "incomplete"
            self._close(index, item)
        self.out.say("response.done", response=self.body())
        self.out.rate_limits()

    def cut(self, now: float) -> None:
        """The client stops playing now: what it has not played of the answer was not heard."""
        if self._message is not None and (spoken := self._message.parts[0].spoken) is not None:
            if spoken.cut is None and self.playback.ahead(now):
                spoken.cut = self.playback.played(now)
            self.playback.ends = now

    def body(self) -> dict[str, Any]:
        """The response object."""
        config = self.config
        return {
            "object": "realtime.response",
            "id": self.id,
            "status": self.status,
            "status_details": self.status_details,
            "output": [item.body() for item in self.output],
            "conversation_id": self.conversation_id if self.conversation is not None else None,
            "output_modalities": [config.modality],
            "max_output_tokens": config.max_output_tokens,
            "audio": {"output": {"format": config.format.model_dump(), "voice": config.voice}},
            "usage": usage_body(self.usage),
            "metadata": dict(config.metadata) if config.metadata is not None else None,
        }

    def _text(self, text: str) -> None:
        item = self._message or self._open_message()
        item.parts[0].text += text
        kind = "output_audio_transcript" if self.speaks else "output_text"
        self.out.say(f"response.{kind}.delta", **self._place(item), content_index=0, delta=text)

    def _audio(self, pcm: bytes, now: float) -> None:
        item = self._message or self._open_message()
        spoken = item.parts[0].spoken
        if spoken is None:
            return
        seconds = len(pcm) / 2 / rate_of(self.config.format)
        self.playback.send(seconds, now)
        spoken.sent = self.playback.sent
        audio = encode(self.config.format, pcm)
        self.out.say("response.output_audio.delta", **self._place(item), content_index=0, delta=audio)

    def _arguments(self, item: Item, arguments: str) -> None:
        item.arguments += arguments
        if arguments:
            self.out.say(
                "response.function_call_arguments.delta", **self._place(item), call_id=item.call_id, delta=arguments
            )

    def _open_message(self) -> Item:
        part = Part("output_audio", spoken=Spoken(self.heard)) if self.speaks else Part("output_text")
        item = self._message = Item("message", status="in_progress", role="assistant")
        self._open(item)
        item.parts.append(part)
        self.out.say("response.content_part.added", **self._place(item), content_index=0, part=_part_body(part))
        return item

    def _open(self, item: Item) -> None:
        self.output.append(item)
        self.out.say(
            "response.output_item.added", response_id=self.id, output_index=len(self.output) - 1, item=item.body()
        )
        if self.conversation is not None:
            self.conversation.items.append(item)
            previous = self.conversation.previous_id(item)
            self.out.say("conversation.item.added", previous_item_id=previous, item=item.body())

    def _close(self, index: int, item: Item) -> None:
        place = self._place(item)
        for part in item.parts:
            if part.kind == "output_audio":
                self.out.say("response.output_audio.done", **place, content_index=0)
                self.out.say("response.output_audio_transcript.done", **place, content_index=0, transcript=part.text)
            else:
                self.out.say("response.output_text.done", **place, content_index=0, text=part.text)
            self.out.say("response.content_part.done", **place, content_index=0, part=_part_body(part))
        if item.kind == "function_call":
            said = {"call_id": item.call_id, "name": item.name, "arguments": item.arguments}
            self.out.say("response.function_call_arguments.done", **place, **said)
        if self.conversation is not None and item in self.conversation.items:
            previous = self.conversation.previous_id(item)
            self.out.say("conversation.item.done", previous_item_id=previous, item=item.body())
        self.out.say("response.output_item.done", response_id=self.id, output_index=index, item=item.body())

    def _place(self, item: Item) -> dict[str, Any]:
        return {"response_id": self.id, "item_id": item.id, "output_index": self.output.index(item)}


OUTCOMES: dict[FinishReason, tuple[str, dict[str, Any] | None]] = {
    FinishReason.STOP: ("completed", None),
    FinishReason.TOOL_CALLS: ("completed", None),
    FinishReason.LENGTH: ("incomplete", {"type": "incomplete", "reason": "max_output_tokens"}),
    FinishReason.CONTENT_FILTER: ("incomplete", {"type": "incomplete", "reason": "content_filter"}),
    FinishReason.CANCELLED: ("cancelled", {"type": "cancelled", "reason": "client_cancelled"}),
}


def usage_body(usage: Usage | None) -> dict[str, Any] | None:
    """Realtime's usage object; the model behind reads and writes text only."""
    if usage is None:
        return None
    return {
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "input_token_details": {
            "text_tokens": usage.input_tokens,
            "audio_tokens": 0,
            "image_tokens": 0,
            "cached_tokens": usage.cached_tokens,
        },
        "output_token_details": {"text_tokens": usage.output_tokens, "audio_tokens": 0},
    }


def _part_body(part: Part) -> dict[str, Any]:
    """As it looks in `response.content_part.*`, where it is spelled otherwise than in items."""
    if part.kind == "output_audio":
        return {"type": "audio", "transcript": part.text}
    return {"type": "text", "text": part.text}
