"""What a client may say on `/ws`, and how a text frame is read: a JSON object with a `type`, or plain text to speak."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from gateway.errors import InvalidRequest
from gateway.events import AudioFormat, Encoding
from wires.chat_messages import MessageBody

FORMATS = {
    "pcm": Encoding.PCM,
    "pcm_s16le": Encoding.PCM,
    "wav": Encoding.WAV,
    "mp3": Encoding.MP3,
    "opus": Encoding.OPUS,
}


class FormatBody(BaseModel):
    """An audio format in full; `rate` is samples per second."""

    encoding: str
    rate: int = Field(default=24_000, ge=8_000, le=48_000)
    channels: Literal[1] = 1


Format = str | FormatBody


class _Message(BaseModel):
    model_config = ConfigDict(extra="ignore")


class Configure(_Message):
    type: Literal["configure"]
    model: str | None = None
    voice: str | None = None
    format: Format | None = None
    system: str | None = None
    speak: bool | None = None
    input_rate: int | None = Field(default=None, ge=8_000, le=48_000)


class _Turn(_Message):
    id: str | None = Field(default=None, min_length=1, max_length=128)
    voice: str | None = None
    format: Format | None = None
    interrupt: bool = False


class _Answer(_Turn):
    model: str | None = None
    speak: bool | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=2)


class Chat(_Answer):
    type: Literal["chat"]
    text: str | None = None
    messages: list[MessageBody] | None = None


class AudioCommit(_Answer):
    """The binary frames so far are what the user said: answer it."""

    type: Literal["audio.commit"]
    language: str | None = None

    def chat(self, text: str) -> Chat:
        """The same turn, asked in writing."""
        return Chat(type="chat", text=text, **self.model_dump(exclude={"type", "language"}))


class Speak(_Turn):
    type: Literal["speak"]
    text: str
    speed: float = Field(default=1.0, ge=0.25, le=4.0)


class SpeakAppend(_Turn):
    type: Literal["speak.append"]
    id: str = Field(min_length=1, max_length=128)
    text: str
    speed: float = Field(default=1.0, ge=0.25, le=4.0)


class SpeakFlush(_Message):
    type: Literal["speak.flush"]
    id: str


class SpeakEnd(_Message):
    type: Literal["speak.end"]
    id: str
    text: str | None = None


class Cancel(_Message):
    """`heard_ms` is how much of the turn's speech was played before it was cut off, also where the turn is over."""

    type: Literal["cancel"]
    id: str | None = None
    heard_ms: float | None = Field(default=None, ge=0)


class Ping(_Message):
    type: Literal["ping"]


ClientMessage = Configure | Chat | AudioCommit | Speak | SpeakAppend | SpeakFlush | SpeakEnd | Cancel | Ping
_adapter: TypeAdapter[ClientMessage] = TypeAdapter(Annotated[ClientMessage, Field(discriminator="type")])


def parse(text: str) -> ClientMessage | str:
    """A message, or the text itself where it is not a JSON object with a `type`. Raises InvalidRequest."""
    value = _json_object(text)
    if value is None or not isinstance(value.get("type"), str):
        return text
    try:
        return _adapter.validate_python(value)
    except ValidationError as error:
        raise _explained(error, str(value["type"])) from None


def audio_format(asked: Format | None) -> AudioFormat:
    """The format that `asked` names; 24 kHz PCM when it names none. Raises InvalidRequest."""
    if asked is None:
        return AudioFormat()
    name = asked if isinstance(asked, str) else asked.encoding
    encoding = FORMATS.get(name)
    if encoding is None:
        raise InvalidRequest(f"There is no audio format {name[:40]!r}; use pcm, wav, mp3 or opus.", param="format")
    return AudioFormat(encoding) if isinstance(asked, str) else AudioFormat(encoding, asked.rate, asked.channels)


def _json_object(text: str) -> dict[str, Any] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        value = _decoded(text)
    except ValueError:
        return None
    except RecursionError:
        raise InvalidRequest("The message is nested too deeply.") from None
    return value if isinstance(value, dict) else None


def _decoded(text: str) -> Any:
    """The JSON in `text`. Raises ValueError."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        # What msgspec alone refuses, half a surrogate pair above all, is a message and not a text to speak.
        return json.loads(text)


def _explained(error: ValidationError, kind: str) -> InvalidRequest:
    problem = error.errors(include_input=False, include_url=False, include_context=False)[0]
    if problem["type"] == "union_tag_invalid":
        return InvalidRequest(f"There is no message type {kind[:40]!r}.", code="unknown_type", param="type")
    place = ".".join(str(part) for part in problem["loc"][1:])
    return InvalidRequest(f"{kind}: {place}: {problem['msg']}.", param=place)
