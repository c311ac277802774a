"""What a caller asks for, in one shape for all wires and all providers.

A wire parses its own body into these; an adapter maps these to its vendor's body. Vendor extras stay in `extra`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import msgspec

from gateway.events import AudioFormat

DEFAULT_FORMAT = AudioFormat()
NOTHING: Mapping[str, Any] = MappingProxyType({})
ML_PARAMETERS = "ml_parameters"
"""Where the ML Commons wire puts the parameters of a registered model in `ChatRequest.extra`; no caller's own field."""


class Role(StrEnum):
    """Who wrote a message. OpenAI's `developer` is `SYSTEM`."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class Text(msgspec.Struct, frozen=True):
    """A piece of a message's text."""

    text: str


class Image(msgspec.Struct, frozen=True):
    """An image by URL (`https:` or `data:`); `detail` is OpenAI's hint and may be ignored."""

    url: str
    detail: str | None = None


class Reasoning(msgspec.Struct, frozen=True):
    """An earlier turn's thinking, given back to the model; see `ReasoningDelta`."""

    text: str
    signature: str | None = None


class ToolCall(msgspec.Struct, frozen=True):
    """A call that the assistant made. `arguments` is JSON text, `{}` when there are none."""

    call_id: str
    name: str
    arguments: str


class ToolResult(msgspec.Struct, frozen=True):
    """What the tool of call `call_id` answered."""

    call_id: str
    text: str


Part = Text | Image | Reasoning | ToolCall | ToolResult


class Message(msgspec.Struct, frozen=True):
    """One message of the conversation; `parts` keep their order."""

    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """All text parts joined, without a separator."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))


def text_message(role: Role, text: str) -> Message:
    """A message of one text part."""
    return Message(role, (Text(text),))


class Tool(msgspec.Struct, frozen=True):
    """A function the model may call. `parameters` is its JSON schema, None when it takes none."""

    name: str
    description: str | None = None
    parameters: Mapping[str, Any] | None = None
    strict: bool | None = None


class Sampling(msgspec.Struct, frozen=True):
    """How the model chooses. None means the provider's own default."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None


class ChatRequest(msgspec.Struct, frozen=True):
    """One chat turn.

    `model` is the public model id on a wire and the provider's own id inside an adapter (the catalog replaces it).
    `tool_choice` is `auto`, `none`, `required` or a tool's name; None leaves it to the provider.
    `response_format` is OpenAI's object (`{"type": "json_schema", ...}`), passed on unchanged or refused.
    `options` are the settings of the model's row in polywire.yaml (a dialect, say), never the caller's.
    `extra` holds the caller's vendor fields; an adapter passes on what its vendor knows and ignores the rest.
    """

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: str | None = None
    parallel_tool_calls: bool | None = None
    sampling: Sampling = Sampling()
    response_format: Mapping[str, Any] | None = None
    reasoning_effort: str | None = None
    user: str | None = None
    options: Mapping[str, Any] = NOTHING
    extra: Mapping[str, Any] = NOTHING


class SpeechRequest(msgspec.Struct, frozen=True):
    """Text to speak. `voice` None is the model's default; `speed` 1.0 is normal.

    `format` is what the caller wants to hear; a provider always yields PCM and says its true rate in `AudioStart`
    (it may use `format.rate` as a hint), `gateway/audio.py` makes the rest. `needed_at` is when the listener will have
    nothing left to hear, by `time.monotonic()`; 0 is now. A provider that serves several in turns goes by it.
    """

    model: str
    text: str
    voice: str | None = None
    format: AudioFormat = DEFAULT_FORMAT
    speed: float = 1.0
    instructions: str | None = None
    needed_at: float = 0.0
    options: Mapping[str, Any] = NOTHING


class TranscriptionRequest(msgspec.Struct, frozen=True):
    """Speech to write down. `pcm` is signed 16-bit little-endian mono at `rate` samples per second."""

    model: str
    pcm: bytes
    rate: int
    language: str | None = None
    prompt: str | None = None
    temperature: float | None = None
    options: Mapping[str, Any] = NOTHING
