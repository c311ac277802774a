"""`POST /v1/audio/transcriptions`: an uploaded audio file written down, whole or as server-sent events.

`json`, `text` and `verbose_json` are given. Transcribers say no times here: `verbose_json` has one segment, and what
needs times (`srt`, `vtt`, `diarized_json`, word timestamps) is refused by name.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal, assert_never

from fastapi import APIRouter, File, Form, Request, UploadFile
from starlette.responses import PlainTextResponse, Response

from gateway.completion import Completion
from gateway.decoding import decode_audio
from gateway.errors import InvalidRequest, Unsupported
from gateway.events import (
    AudioDelta,
    AudioStart,
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
from gateway.request import TranscriptionRequest
from gateway.wav import SAMPLE_BYTES
from wires.base import StreamResponse, gateway_of
from wires.openai.errors import KEEPALIVE, WIRE, JsonBody, documented, error_frame
from wires.openai.whole import whole

router = APIRouter(tags=["OpenAI"])
RATE = 16_000
"""Samples per second that transcribers are given; speech has nothing above half of it."""

FORMATS = "json, text and verbose_json"
ANSWERS = documented({"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}, streams=True)
ANSWERS[200]["content"]["text/plain"] = {"schema": {"type": "string"}}


@router.post("/v1/audio/transcriptions", responses=ANSWERS)
async def create(
    request: Request,
    file: Annotated[UploadFile, File()],
    model: Annotated[str, Form(examples=["transcriber"])],
    response_format: Annotated[Literal["json", "text", "verbose_json", "srt", "vtt", "diarized_json"], Form()] = "json",
    language: Annotated[str | None, Form()] = None,
    prompt: Annotated[str | None, Form()] = None,
    temperature: Annotated[float | None, Form(ge=0, le=1)] = None,
    stream: Annotated[bool, Form()] = False,
    timestamp_granularities: Annotated[list[str], Form(alias="timestamp_granularities[]")] = [],  # noqa: B006 - FastAPI copies it
    include: Annotated[list[str], Form(alias="include[]")] = [],  # noqa: B006 - FastAPI copies it
) -> Response:
    """Write down what is said in a file."""
    gateway = gateway_of(request)
    _check(response_format, timestamp_granularities, include)
    gateway.find(model, "transcription")
    pcm = await asyncio.to_thread(decode_audio, await file.read(), RATE)
    transcription = TranscriptionRequest(
        model=model, pcm=pcm, rate=RATE, language=language, prompt=prompt, temperature=temperature
    )
    if stream:
        return StreamResponse(
            WIRE,
            lambda: gateway.transcribe(transcription, wire=WIRE.name),
            TranscriptEncoder(),
            limits=gateway.settings.limits,
            keepalive=KEEPALIVE,
        )
    async with gateway.transcribe(transcription, wire=WIRE.name) as events:
        completion = await whole(events)
    if response_format == "text":
        return PlainTextResponse(completion.text.encode("utf-8", "replace") + b"\n")
    seconds = len(pcm) / (SAMPLE_BYTES * RATE)
    if response_format == "json":
        return JsonBody({"text": completion.text, "usage": _duration(seconds)})
    return JsonBody(verbose_body(completion, seconds, language, temperature))


def _check(response_format: str, granularities: list[str], include: list[str]) -> None:
    if response_format in ("srt", "vtt", "diarized_json"):
        raise Unsupported(
            f"The format {response_format!r} needs times that no transcriber here gives; use {FORMATS}.",
            param="response_format",
        )
    if granularities and response_format != "verbose_json":
        raise InvalidRequest(
            "timestamp_granularities is only allowed with response_format: verbose_json.",
            param="timestamp_granularities",
        )
    if any(granularity != "segment" for granularity in granularities):
        raise Unsupported("Only timestamps of segments are given.", param="timestamp_granularities")
    if include:
        raise Unsupported("Log probabilities are not supported.", param="include")


class TranscriptEncoder:
    """`transcript.text.delta` frames, closed by `transcript.text.done` with the whole text."""

    def __init__(self) -> None:
        self._text: list[str] = []

    def encode(self, event: StreamEvent) -> Iterator[bytes]:
        match event:
            case TextDelta(text=text):
                self._text.append(text)
                yield _frame({"type": "transcript.text.delta", "delta": text})
            case Finished(usage=usage):
                body = {"type": "transcript.text.done", "text": "".join(self._text)}
                yield _frame(body | ({"usage": _tokens(usage)} if usage else {}))
            case Failed(error=error):
                yield error_frame(error)
            case Started() | ReasoningDelta() | ToolCallStart() | ToolCallDelta() | AudioStart() | AudioDelta():
                return
            case _:
                assert_never(event)


def verbose_body(
    completion: Completion, seconds: float, language: str | None, temperature: float | None
) -> dict[str, Any]:
    """The transcript as one segment that lasts from the first sample to the last."""
    segment = {
        "id": 0,
        "seek": 0,
        "start": 0.0,
        "end": seconds,
        "text": completion.text,
        "tokens": [],
        "temperature": temperature or 0.0,
        "avg_logprob": 0.0,
        "compression_ratio": 1.0,
        "no_speech_prob": 0.0,
    }
    return {
        "task": "transcribe",
        "language": language or "unknown",
        "duration": seconds,
        "text": completion.text,
        "segments": [segment] if completion.text else [],
        "usage": _duration(seconds),
    }


def _frame(body: dict[str, object]) -> bytes:
    return f"data: {json.dumps(body)}\n\n".encode()


def _duration(seconds: float) -> dict[str, object]:
    return {"type": "duration", "seconds": seconds}


def _tokens(usage: Usage) -> dict[str, object]:
    total = usage.input_tokens + usage.output_tokens
    return {
        "type": "tokens",
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": total,
    }
