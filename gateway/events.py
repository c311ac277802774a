"""The events of a stream. Every wire renders these and every provider yields a subset of them.

Grammar (enforced in `gateway/streams.py`, the only place that builds `Started` and `Failed`):

    Started (TextDelta | ReasoningDelta | ToolCallStart ToolCallDelta* | AudioStart AudioDelta*)* (Finished | Failed)

There is exactly one terminal event and it is always the last one.

Structs, since a frozen dataclass sets each field by a call. `gc=False` is for those that hold only texts, bytes and
numbers: they can be in no circle, so no collection needs to walk them.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from gateway.errors import GatewayError


class FinishReason(StrEnum):
    """Why an answer ended. `CANCELLED` is the only reason that a provider may not give."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CONTENT_FILTER = "content_filter"
    CANCELLED = "cancelled"


class Encoding(StrEnum):
    """How audio bytes are written. `PCM` is signed 16-bit little-endian without a header."""

    PCM = "pcm_s16le"
    WAV = "wav"
    MP3 = "mp3"
    OPUS = "opus"
    FLAC = "flac"
    AAC = "aac"


class AudioFormat(msgspec.Struct, frozen=True, gc=False):
    """What the bytes of the following `AudioDelta`s are. `rate` is samples per second and always the true rate."""

    encoding: Encoding = Encoding.PCM
    rate: int = 24_000
    channels: int = 1


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Token counts of one answer; `characters` is what a voice was given to speak."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    characters: int = 0


class Started(msgspec.Struct, frozen=True, gc=False):
    """The stream is open. `created` is in Unix seconds; `model` is the public model id."""

    id: str
    model: str
    created: int


class TextDelta(msgspec.Struct, frozen=True, gc=False):
    """The next piece of the answer's text, never empty."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, gc=False):
    """The next piece of the model's thinking. `signature` is a vendor's opaque proof that must go back unchanged."""

    text: str
    signature: str | None = None


class ToolCallStart(msgspec.Struct, frozen=True, gc=False):
    """A tool call begins. `index` counts the calls of this answer from 0."""

    index: int
    call_id: str
    name: str


class ToolCallDelta(msgspec.Struct, frozen=True, gc=False):
    """The next piece of the JSON text of call `index`'s arguments."""

    index: int
    arguments: str


class AudioStart(msgspec.Struct, frozen=True):
    """Audio begins, or its format changes."""

    format: AudioFormat


class AudioDelta(msgspec.Struct, frozen=True, gc=False):
    """The next audio bytes, in the format of the last `AudioStart`."""

    data: bytes


class Finished(msgspec.Struct, frozen=True):
    """The answer is whole (or was cancelled: see `reason`). Terminal."""

    reason: FinishReason
    usage: Usage | None = None


class Failed(msgspec.Struct, frozen=True):
    """The answer broke off; what was sent before stays valid. Terminal."""

    error: GatewayError


Delta = TextDelta | ReasoningDelta | ToolCallStart | ToolCallDelta
AudioEvent = AudioStart | AudioDelta
StreamEvent = Started | Delta | AudioEvent | Finished | Failed
