"""What a caller asks for, in one shape for all wires and all providers.

A wire parses its own body into these; an adapter maps these to its vendor's body. Vendor extras stay in `extra`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from gateway.events import AudioFormat

DEFAULT_FORMAT = AudioFormat()
_EMPTY: Mapping[str, Any] = MappingProxyType({})


def _nothing() -> Mapping[str, Any]:
    return _EMPTY


class Role(StrEnum):
    """Who wrote a message. OpenAI's `developer` is `SYSTEM`."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of a message's text."""

    text: str


@dataclass(frozen=True, slots=True)
class Image:
    """An image by URL (`https:` or `data:`); `detail` is OpenAI's hint and may be ignored."""

    url: str
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Reasoning:
    """An earlier turn's thinking, given back to the model; see `ReasoningDelta`."""

    text: str
    signature: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the assistant made. `arguments` is JSON text, `{}` when there are none."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What the tool of call `call_id` answered."""

    call_id: str
    text: str


Part = Text | Image | Reasoning | ToolCall | ToolResult


@dataclass(frozen=True, slots=True)
class Message:
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


@dataclass(frozen=True, slots=True)
class Tool:
    """A function the model may call. `parameters` is its JSON schema, None when it takes none."""

    name: str
    description: str | None = None
    parameters: Mapping[str, Any] | None = None
    strict: bool | None = None


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the model chooses. None means the provider's own default."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None


@dataclass(frozen=True, slots=True)
class ChatRequest:
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
    options: Mapping[str, Any] = field(default_factory=_nothing)
    extra: Mapping[str, Any] = field(default_factory=_nothing)

    def for_upstream(self, model: str, options: Mapping[str, Any]) -> ChatRequest:
        """The same turn for a provider's model; `dataclasses.replace` costs three times as much."""
        return ChatRequest(
            model,
            self.messages,
            self.tools,
            self.tool_choice,
            self.parallel_tool_calls,
            self.sampling,
            self.response_format,
            self.reasoning_effort,
            self.user,
            options,
            self.extra,
        )


@dataclass(frozen=True, slots=True)
class SpeechRequest:
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
    needed_at: float = field(default=0.0, compare=False)
    options: Mapping[str, Any] = field(default_factory=_nothing)


@dataclass(frozen=True, slots=True)
class TranscriptionRequest:
    """Speech to write down. `pcm` is signed 16-bit little-endian mono at `rate` samples per second."""

    model: str
    pcm: bytes
    rate: int
    language: str | None = None
    prompt: str | None = None
    temperature: float | None = None
    options: Mapping[str, Any] = field(default_factory=_nothing)
