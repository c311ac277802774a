"""The session object: its fields, how an update merges into it, and how it looks in events.

Accepted without effect, since no provider here has them: `noise_reduction`, `include`, `tracing`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gateway.errors import InvalidRequest, Unsupported
from gateway.request import Tool
from wires.openai.realtime.formats import PcmFormat, WireFormat

Model = TypeVar("Model", bound=BaseModel)

NULLABLE = frozenset(
    {"turn_detection", "transcription", "noise_reduction", "tracing", "prompt", "include", "reasoning"}
    | {"idle_timeout_ms", "language", "strength", "metadata"}
)
"""Fields that null clears; elsewhere null says nothing."""
BETA_FIELDS = {
    "modalities": "output_modalities",
    "voice": "audio.output.voice",
    "speed": "audio.output.speed",
    "input_audio_format": "audio.input.format",
    "output_audio_format": "audio.output.format",
    "input_audio_transcription": "audio.input.transcription",
    "turn_detection": "audio.input.turn_detection",
    "max_response_output_tokens": "max_output_tokens",
}
SEMANTIC_SILENCE_MS = {"low": 1000, "medium": 600, "auto": 600, "high": 300}
"""`semantic_vad` is `server_vad` with these pauses: no model here knows whether a sentence is complete."""
TAGS = frozenset({"server_vad", "semantic_vad", "audio/pcm", "audio/pcmu", "audio/pcma"})


class Section(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class ServerVad(Section):
    type: Literal["server_vad"]
    threshold: float = Field(default=0.5, ge=0, le=1)
    prefix_padding_ms: int = Field(default=300, ge=0, le=10_000)
    silence_duration_ms: int = Field(default=500, ge=0, le=10_000)
    idle_timeout_ms: int | None = Field(default=None, ge=1_000, le=600_000)
    create_response: bool = True
    interrupt_response: bool = True


class SemanticVad(Section):
    type: Literal["semantic_vad"]
    eagerness: Literal["low", "medium", "high", "auto"] = "auto"
    create_response: bool = True
    interrupt_response: bool = True

    @property
    def as_server_vad(self) -> ServerVad:
        return ServerVad(
            type="server_vad",
            silence_duration_ms=SEMANTIC_SILENCE_MS[self.eagerness],
            create_response=self.create_response,
            interrupt_response=self.interrupt_response,
        )


class InputTranscription(Section):
    model: str | None = None
    language: str | None = None
    prompt: str | None = None


class NoiseReduction(Section):
    type: Literal["near_field", "far_field"]
    strength: float | None = None


class AudioInput(Section):
    format: WireFormat = PcmFormat()
    transcription: InputTranscription | None = None
    noise_reduction: NoiseReduction | None = None
    turn_detection: Annotated[ServerVad | SemanticVad, Field(discriminator="type")] | None = ServerVad(
        type="server_vad"
    )


class VoiceId(Section):
    id: str


class AudioOutput(Section):
    format: WireFormat = PcmFormat()
    voice: str | VoiceId = ""
    speed: float = Field(default=1.0, ge=0.25, le=1.5)


class Audio(Section):
    input: AudioInput = AudioInput()
    output: AudioOutput = AudioOutput()


class FunctionTool(Section):
    type: Literal["function"]
    name: str = Field(min_length=1)
    description: str | None = None
    parameters: dict[str, Any] | None = None


class NamedChoice(Section):
    type: Literal["function"]
    name: str


Modalities = Annotated[list[Literal["text", "audio"]], Field(min_length=1, max_length=1)]
ToolChoice = Literal["auto", "none", "required"] | NamedChoice
MostTokens = Annotated[int, Field(ge=1, le=4096)] | Literal["inf"]


class SessionConfig(Section):
    """What a client may set. `voice` empty means the default voice.

    A session of type `transcription` only listens: of the fields, its object has those of the input.
    """

    type: Literal["realtime", "transcription"] = "realtime"
    output_modalities: Modalities = ["audio"]
    instructions: str = ""
    tools: list[FunctionTool] = []
    tool_choice: ToolChoice = "auto"
    max_output_tokens: MostTokens = "inf"
    audio: Audio = Audio()
    include: list[str] | None = None
    truncation: str | dict[str, Any] = "auto"
    tracing: str | dict[str, Any] | None = None
    prompt: None = None
    reasoning: dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None

    @property
    def vad(self) -> ServerVad | None:
        """How turns are detected, None when the client says where they end."""
        asked = self.audio.input.turn_detection
        return asked.as_server_vad if isinstance(asked, SemanticVad) else asked

    def updated(self, update: Mapping[str, Any]) -> SessionConfig:
        """With the fields of `update`, which merge into nested objects. Raises InvalidRequest or Unsupported."""
        kind = update.get("type")
        if kind is None:
            raise InvalidRequest(
                f"session.type is required: {self.type!r}.", code="missing_required_parameter", param="session.type"
            )
        if kind != self.type:
            raise InvalidRequest(
                f"This session is of type {self.type!r}, which cannot be changed; {OPENED_BY[self.type]}.",
                code="invalid_value",
                param="session.type",
            )
        if update.get("prompt") is not None:
            raise Unsupported("Stored prompts are not supported; send instructions.", param="session.prompt")
        for old, new in BETA_FIELDS.items():
            if old in update:
                raise InvalidRequest(
                    f"'session.{old}' belongs to the beta protocol; use 'session.{new}'.",
                    code="unknown_parameter",
                    param=f"session.{old}",
                )
        return checked(SessionConfig, merged(self.model_dump(), update), "session")

    def body(self, voice: str) -> dict[str, Any]:
        """The configurable part of the session object; `voice` stands where none was chosen."""
        body = self.model_dump()
        body["tools"] = [tool.model_dump(exclude_none=True) for tool in self.tools]
        source = body["audio"]["input"]
        for name in ("transcription", "noise_reduction"):
            section = getattr(self.audio.input, name)
            source[name] = section and section.model_dump(exclude_none=True)
        if self.type == "transcription":
            return {"type": self.type, "audio": {"input": source}, "include": self.include}
        body["audio"]["output"]["voice"] = body["audio"]["output"]["voice"] or voice
        for optional in ("reasoning", "parallel_tool_calls"):
            if body[optional] is None:
                del body[optional]
        return body


TRANSCRIBING = SessionConfig(type="transcription", audio=Audio(input=AudioInput(transcription=InputTranscription())))
OPENED_BY = {
    "realtime": "to transcribe only, connect with ?intent=transcription",
    "transcription": "for answers, connect with ?model=",
}


def opened(given: Mapping[str, Any]) -> SessionConfig:
    """How a session begins that was described by `given`. Raises InvalidRequest or Unsupported."""
    return (TRANSCRIBING if given.get("type") == "transcription" else SessionConfig()).updated(given)


def merged(current: Mapping[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
    """`current` with what `update` holds. An object of another `type` replaces the one that was there."""
    result = dict(current)
    for name, value in update.items():
        before = result.get(name)
        if value is None and name not in NULLABLE:
            continue
        result[name] = value
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            kind = before.get("type")
            if value.get("type", kind) == kind:
                result[name] = merged(before, value)
    return result


def checked(model: type[Model], values: object, where: str) -> Model:
    """`values` as `model`. Raises InvalidRequest with the place of the first fault."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise explained(error, where) from None


def explained(error: ValidationError, where: str = "") -> InvalidRequest:
    """The first fault of `error`, with its place below `where`."""
    problem = error.errors(include_input=False, include_url=False, include_context=False)[0]
    place = ".".join([*([where] if where else []), *(str(part) for part in problem["loc"] if part not in TAGS)])
    code = "missing_required_parameter" if problem["type"] == "missing" else "invalid_value"
    return InvalidRequest(f"{place}: {problem['msg']}.", code=code, param=place)


def voice_name(voice: str | VoiceId) -> str:
    """The name of a voice, however it was given."""
    return voice.id if isinstance(voice, VoiceId) else voice


def tools_of(tools: list[FunctionTool]) -> tuple[Tool, ...]:
    return tuple(Tool(tool.name, tool.description, tool.parameters) for tool in tools)


def choice_of(choice: ToolChoice) -> str:
    return choice.name if isinstance(choice, NamedChoice) else choice
