"""`POST /v1/audio/speech`: audio bytes as they are made, or the same bytes in server-sent events.

MP3 is the default, as at OpenAI. A text longer than a provider takes at once is accepted and cut at sentences, so the
bound is `limits.prompt_characters` and not OpenAI's 4096. WAV has one header with both sizes 0xFFFFFFFF, since the
length is not known yet. A failure midway breaks the body of audio; inside events it is an error frame.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Literal, assert_never

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response, StreamingResponse

from gateway.audio import content_type
from gateway.events import (
    AudioDelta,
    AudioFormat,
    AudioStart,
    Encoding,
    Failed,
    Finished,
    ReasoningDelta,
    Started,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from gateway.request import SpeechRequest
from wires.base import StreamResponse, gateway_of
from wires.bodies import StrictBody
from wires.documents import EVENTS
from wires.openai.errors import KEEPALIVE, WIRE, documented, error_frame

router = APIRouter(tags=["OpenAI"])
ENCODINGS = {
    "mp3": Encoding.MP3,
    "opus": Encoding.OPUS,
    "aac": Encoding.AAC,
    "flac": Encoding.FLAC,
    "wav": Encoding.WAV,
    "pcm": Encoding.PCM,
}
RATE = 24_000
"""OpenAI's PCM has this rate, and says it nowhere."""

BYTES = {"schema": {"type": "string", "format": "binary"}}
ANSWERS = documented({}, streams=True)
ANSWERS[200]["content"] = {content_type(encoding): BYTES for encoding in ENCODINGS.values()} | {
    "text/event-stream": EVENTS
}


class VoiceId(StrictBody):
    id: str = Field(min_length=1)


class SpeechBody(StrictBody):
    """The request body; unknown fields are kept and ignored. Without a voice the model's own speaks."""

    model: str = Field(examples=["voice"])
    input: str = Field(min_length=1)
    voice: str | VoiceId | None = None
    response_format: Literal["mp3", "opus", "aac", "flac", "wav", "pcm"] = "mp3"
    speed: float = Field(default=1.0, ge=0.25, le=4.0)
    stream_format: Literal["audio", "sse"] = "audio"
    instructions: str | None = None


@router.post("/v1/audio/speech", response_class=StreamingResponse, responses=ANSWERS)
async def create(request: Request, body: SpeechBody) -> Response:
    """Speak a text."""
    gateway = gateway_of(request)
    # A voice may name a speech model by itself; the model that is named beside it must exist all the same.
    gateway.find(body.model, "speech")
    speech = parse(body)
    if body.stream_format == "sse":
        return StreamResponse(
            WIRE,
            lambda: gateway.speech(speech, wire=WIRE.name),
            SpeechEventEncoder(),
            limits=gateway.settings.limits,
            keepalive=KEEPALIVE,
        )
    return StreamResponse(
        WIRE,
        lambda: gateway.speech(speech, wire=WIRE.name),
        SpeechByteEncoder(),
        limits=gateway.settings.limits,
        media_type=content_type(speech.format.encoding),
    )


def parse(body: SpeechBody) -> SpeechRequest:
    """The request."""
    voice = body.voice.id if isinstance(body.voice, VoiceId) else body.voice
    return SpeechRequest(
        model=body.model,
        text=body.input,
        voice=voice or None,
        format=AudioFormat(ENCODINGS[body.response_format], RATE),
        speed=body.speed,
        instructions=body.instructions,
    )


class SpeechByteEncoder:
    """The audio itself. It has no frame for a failure."""

    def encode(self, event: StreamEvent) -> Iterator[bytes]:
        match event:
            case AudioDelta(data=data):
                yield data
            case Failed(error=error):
                raise error
            case Started() | AudioStart() | Finished():
                return
            case TextDelta() | ReasoningDelta() | ToolCallStart() | ToolCallDelta():
                return
            case _:
                assert_never(event)


class SpeechEventEncoder:
    """`speech.audio.delta` frames, closed by `speech.audio.done`.

    Every piece of base64 but the last stands for a multiple of three bytes: so the pieces can be joined before they
    are decoded as well as after.
    """

    def __init__(self) -> None:
        self._rest = b""

    def encode(self, event: StreamEvent) -> Iterator[bytes]:
        match event:
            case AudioDelta(data=data):
                data = self._rest + data
                whole = len(data) - len(data) % 3
                self._rest = data[whole:]
                yield from _delta(data[:whole])
            case Finished(usage=usage):
                yield from _delta(self._rest)
                yield _frame({"type": "speech.audio.done", "usage": _usage(usage or Usage())})
            case Failed(error=error):
                yield error_frame(error)
            case Started() | AudioStart():
                return
            case TextDelta() | ReasoningDelta() | ToolCallStart() | ToolCallDelta():
                return
            case _:
                assert_never(event)


def _delta(data: bytes) -> Iterator[bytes]:
    if data:
        yield _frame({"type": "speech.audio.delta", "audio": b64encode(data).decode()})


def _frame(body: dict[str, object]) -> bytes:
    return f"data: {json.dumps(body)}\n\n".encode()


def _usage(usage: Usage) -> dict[str, int]:
    """Voices count characters; where one counts tokens as well they are said."""
    total = usage.input_tokens + usage.output_tokens
    counted = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens, "total_tokens": total}
    return counted | {"characters": usage.characters}
