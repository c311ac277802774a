"""What a client may say: the events of the GA protocol, checked. Large ones take milliseconds: use a thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from gateway.errors import GatewayError, InvalidRequest
from wires.openai.realtime.configuration import (
    FunctionTool,
    Modalities,
    MostTokens,
    Section,
    ToolChoice,
    VoiceId,
    explained,
)
from wires.openai.realtime.formats import WireFormat, from_base64


def _audio(text: object) -> object:
    """base64 text as bytes."""
    if not isinstance(text, str):
        raise ValueError("audio must be base64 text")
    return from_base64(text)


class _Event(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, arbitrary_types_allowed=True)
    event_id: str | None = None


class SessionUpdate(_Event):
    type: Literal["session.update"]
    session: dict[str, Any]


class ItemCreate(_Event):
    type: Literal["conversation.item.create"]
    item: dict[str, Any]
    previous_item_id: str | None = None


class ItemRetrieve(_Event):
    type: Literal["conversation.item.retrieve"]
    item_id: str


class ItemDelete(_Event):
    type: Literal["conversation.item.delete"]
    item_id: str


class ItemTruncate(_Event):
    type: Literal["conversation.item.truncate"]
    item_id: str
    content_index: int
    audio_end_ms: int = Field(ge=0)


class Append(_Event):
    type: Literal["input_audio_buffer.append"]
    audio: Annotated[bytes, BeforeValidator(_audio)]


class Commit(_Event):
    type: Literal["input_audio_buffer.commit"]


class Clear(_Event):
    type: Literal["input_audio_buffer.clear"]


class OutputClear(_Event):
    type: Literal["output_audio_buffer.clear"]


class ResponseOutput(Section):
    format: WireFormat | None = None
    voice: str | VoiceId | None = None


class ResponseAudio(Section):
    output: ResponseOutput | None = None


class ResponseParams(Section):
    """What holds for one response; None means what the session says."""

    output_modalities: Modalities | None = None
    instructions: str | None = None
    audio: ResponseAudio | None = None
    tools: list[FunctionTool] | None = None
    tool_choice: ToolChoice | None = None
    max_output_tokens: MostTokens | None = None
    metadata: dict[str, str] | None = None
    conversation: Literal["auto", "none"] = "auto"
    input: list[dict[str, Any]] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: dict[str, Any] | None = None
    prompt: None = None


class ResponseCreate(_Event):
    type: Literal["response.create"]
    response: ResponseParams | None = None


class ResponseCancel(_Event):
    type: Literal["response.cancel"]
    response_id: str | None = None


@dataclass(frozen=True, slots=True)
class Malformed:
    """A message that is no event; the session answers it with `error`."""

    error: GatewayError
    event_id: str | None


ClientEvent = (
    SessionUpdate
    | ItemCreate
    | ItemRetrieve
    | ItemDelete
    | ItemTruncate
    | Append
    | Commit
    | Clear
    | OutputClear
    | ResponseCreate
    | ResponseCancel
)
_events: TypeAdapter[ClientEvent] = TypeAdapter(Annotated[ClientEvent, Field(discriminator="type")])


def parse(message: str | bytes) -> ClientEvent | Malformed:
    """One message of the client."""
    event_id = None
    try:
        value = _json_object(message)
        given = value.get("event_id")
        event_id = given if isinstance(given, str) else None
        return _validated(value)
    except GatewayError as error:
        # The frames that it came through would hold it, and the message, until a collection finds them.
        error.__context__ = None
        return Malformed(error.with_traceback(None), event_id)


def _json_object(message: str | bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(message)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise InvalidRequest("The message is not valid JSON.", code="invalid_json") from None
    if not isinstance(value, dict):
        raise InvalidRequest("The message is not a JSON object.", code="invalid_json")
    return value


def _validated(value: dict[str, Any]) -> ClientEvent:
    kind = value.get("type")
    if not isinstance(kind, str):
        raise InvalidRequest("The event has no type.", code="missing_required_parameter", param="type")
    try:
        return _events.validate_python(value)
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False, include_context=False)[0]
        if problem["type"] == "union_tag_invalid" and not problem["loc"]:
            raise InvalidRequest(f"Invalid value: {kind[:60]!r}.", code="invalid_value", param="type") from None
        raise _placed(error, kind) from None


def _placed(error: ValidationError, kind: str) -> InvalidRequest:
    found = explained(error)
    place = (found.param or "").removeprefix(f"{kind}.")
    return InvalidRequest(found.message.replace(found.param or "", place, 1), code=found.code, param=place)
