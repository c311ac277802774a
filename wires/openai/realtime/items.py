"""Conversation items: messages, function calls and their outputs, and how they look in events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from gateway.errors import InvalidRequest
from gateway.heard import HeardText
from wires.openai.realtime.configuration import Section, explained
from wires.openai.realtime.formats import WireFormat, decode, from_base64, rate_of
from wires.openai.realtime.outgoing import new_id

LONGEST_ECHO = 16 * 1024
"""Characters of an image's data URI that an event repeats; clients often take no message above 1 MiB."""


@dataclass(slots=True)
class Recording:
    """What a user said. The audio is held until it is written down."""

    pcm: bytes
    rate: int
    asked: bool = False
    transcript: str | None = None

    @property
    def seconds(self) -> float:
        return len(self.pcm) / 2 / self.rate


@dataclass(slots=True)
class Spoken:
    """How an answer was spoken: `sent` seconds of audio, of which the listener heard `cut` (None: all)."""

    heard: HeardText = field(default_factory=HeardText)
    sent: float = 0.0
    cut: float | None = None


@dataclass(slots=True)
class Part:
    """One content part. `text` is a text, or an answer's transcript as it was written."""

    kind: Literal["input_text", "input_audio", "input_image", "output_text", "output_audio"]
    text: str = ""
    image_url: str | None = None
    detail: str | None = None
    recording: Recording | None = None
    spoken: Spoken | None = None

    @property
    def remembered(self) -> str:
        """What the conversation holds of it: of speech that was cut off, what was heard."""
        if self.recording is not None:
            return self.recording.transcript or ""
        if self.spoken is not None and self.spoken.cut is not None:
            return self.spoken.heard.text_until(self.spoken.cut)
        return self.text

    def body(self) -> dict[str, Any]:
        """As it looks in an item; audio bytes are never repeated."""
        match self.kind:
            case "input_audio":
                # Null while it is not known: @openai/agents-realtime throws when the field is not there.
                return {"type": self.kind, "transcript": self.recording and self.recording.transcript}
            case "output_audio":
                return {"type": self.kind, "transcript": self.remembered}
            case "input_image":
                body = {"type": self.kind, "detail": self.detail, "image_url": self.image_url}
                short = len(self.image_url or "") <= LONGEST_ECHO
                return {name: value for name, value in body.items() if value and (short or name != "image_url")}
            case _:
                return {"type": self.kind, "text": self.text}


@dataclass(slots=True)
class Item:
    """One item. Which fields say something follows from `kind`."""

    kind: Literal["message", "function_call", "function_call_output"]
    id: str = field(default_factory=lambda: new_id("item"))
    status: str = "completed"
    role: Literal["system", "user", "assistant"] = "user"
    parts: list[Part] = field(default_factory=list)
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    output: str = ""

    @property
    def size(self) -> int:
        """About how much it holds, in bytes."""
        held = sum(len(part.text) + len(part.image_url or "") for part in self.parts)
        recorded = sum(len(part.recording.pcm) for part in self.parts if part.recording is not None)
        return held + recorded + len(self.arguments) + len(self.output)

    def body(self) -> dict[str, Any]:
        """As it looks in events."""
        head = {"id": self.id, "object": "realtime.item", "type": self.kind, "status": self.status}
        match self.kind:
            case "message":
                return {**head, "role": self.role, "content": [part.body() for part in self.parts]}
            case "function_call":
                return {**head, "call_id": self.call_id, "name": self.name, "arguments": self.arguments}
            case _:
                return {**head, "call_id": self.call_id, "output": self.output}


class _PartBody(Section):
    type: Literal["input_text", "input_audio", "input_image", "output_text", "output_audio", "text", "audio"]
    text: str | None = None
    audio: str | None = None
    transcript: str | None = None
    image_url: str | None = None
    detail: str | None = None


class _ItemBody(Section):
    id: str | None = Field(default=None, min_length=1, max_length=128)


class _MessageBody(_ItemBody):
    type: Literal["message"]
    role: Literal["system", "user", "assistant"]
    content: list[_PartBody]


class _CallBody(_ItemBody):
    type: Literal["function_call"]
    name: str
    arguments: str
    call_id: str | None = None


class _OutputBody(_ItemBody):
    type: Literal["function_call_output"]
    call_id: str
    output: str


_bodies: TypeAdapter[_MessageBody | _CallBody | _OutputBody] = TypeAdapter(
    Annotated[_MessageBody | _CallBody | _OutputBody, Field(discriminator="type")]
)
TAKEN = {
    "system": ("input_text", "text"),
    "user": ("input_text", "input_audio", "input_image", "text"),
    "assistant": ("output_text", "text"),
}


def parse_item(value: object, format: WireFormat, where: str = "item") -> Item:
    """An item that a client made; its audio is in `format`. Raises InvalidRequest."""
    try:
        body = _bodies.validate_python(value)
    except ValidationError as error:
        raise explained(error, where) from None
    item_id = body.id or new_id("item")
    match body:
        case _MessageBody():
            parts = [
                _part(part, body.role, format, f"{where}.content[{index}]") for index, part in enumerate(body.content)
            ]
            return Item("message", id=item_id, role=body.role, parts=parts)
        case _CallBody():
            call_id = body.call_id or new_id("call")
            return Item("function_call", id=item_id, call_id=call_id, name=body.name, arguments=body.arguments)
        case _OutputBody():
            return Item("function_call_output", id=item_id, call_id=body.call_id, output=body.output)


def _part(body: _PartBody, role: str, format: WireFormat, where: str) -> Part:
    if body.type not in TAKEN[role]:
        raise InvalidRequest(
            f"Content of type {body.type!r} cannot be in a {role} message; {' or '.join(TAKEN[role])} can.",
            code="invalid_value",
            param=f"{where}.type",
        )
    match body:
        case _PartBody(type="input_audio", audio=str(audio)):
            pcm = decode(format, from_base64(audio))
            return Part("input_audio", recording=Recording(pcm[: len(pcm) // 2 * 2], rate_of(format)))
        case _PartBody(type="input_image", image_url=str(url)):
            return Part("input_image", image_url=url, detail=body.detail)
        case _PartBody(type="input_text" | "output_text" | "text", text=str(text)):
            return Part("output_text" if role == "assistant" else "input_text", text=text)
        case _:
            field_name = {"input_audio": "audio", "input_image": "image_url"}.get(body.type, "text")
            raise InvalidRequest(
                f"Content of type {body.type!r} needs {field_name!r}.",
                code="missing_required_parameter",
                param=f"{where}.{field_name}",
            )
