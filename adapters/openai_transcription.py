"""Transcription by OpenAI and anything compatible (speaches, vLLM). Row: base_url, api_key_env.

The speech is sent whole, as one WAV file; the text comes back as it is found where the server streams it, and else in
one JSON answer.
"""

from __future__ import annotations

import io
import wave
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import msgspec
from openai import omit

from adapters.chat_completions import stream_error
from adapters.http import joined
from adapters.openai_sdk import client, sdk_errors
from adapters.provider_events import completed_events
from gateway.config import ProviderRow, Settings
from gateway.errors import Truncated, UpstreamError
from gateway.events import Finished, FinishReason, TextDelta, Usage
from gateway.request import TranscriptionRequest
from gateway.sse import SseDecoder


class _Tokens(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None


class _Answer(msgspec.Struct):
    """An event of the stream, or the whole JSON answer, which has no type."""

    type: str | None = None
    delta: str | None = None
    text: str | None = None
    usage: _Tokens | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Answer).decode


class OpenAITranscription:
    """A `TranscriptionProvider` over `POST {base_url}/audio/transcriptions`."""

    def __init__(self, row: ProviderRow, settings: Settings) -> None:
        self.name = row.name
        self._row = row
        self._client = client(row)

    async def transcribe(self, request: TranscriptionRequest) -> AsyncGenerator[TextDelta | Finished, None]:
        said = False
        async with aclosing(self._answers(request)) as answers:
            async for answer in answers:
                if answer.type == "transcript.text.delta" and answer.delta:
                    said = True
                    yield TextDelta(answer.delta)
                elif answer.type in ("transcript.text.done", None) and answer.text is not None:
                    if answer.text and not said:
                        yield TextDelta(answer.text)
                    yield Finished(FinishReason.STOP, _usage(answer.usage))
                    return
        raise Truncated(f"Provider {self.name!r} ended before the transcript was whole.", provider=self.name)

    async def aclose(self) -> None:
        await self._client.close()

    async def _answers(self, request: TranscriptionRequest) -> AsyncGenerator[_Answer, None]:
        """The upstream's answers: the events of a stream, or the whole. Raises GatewayError."""
        asked = self._client.audio.transcriptions.with_streaming_response.create(
            model=request.model,
            file=("speech.wav", _wav(request), "audio/wav"),
            stream=True,
            response_format="json",
            language=request.language or omit,
            prompt=request.prompt or omit,
            temperature=omit if request.temperature is None else request.temperature,
        )
        with sdk_errors(self._row):
            async with asked as response:
                streamed = response.headers.get("content-type", "").startswith("text/event-stream")
                pieces = response.iter_bytes()
                async with aclosing(self._events(pieces) if streamed else self._whole(pieces)) as payloads:
                    async for payload in payloads:
                        yield self._parse(payload)

    async def _events(self, pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        decoder = SseDecoder()
        async for piece in pieces:
            for event in completed_events(self._row, decoder, piece):
                if event.data and not event.data.startswith(b"[DONE]"):
                    yield event.data

    async def _whole(self, pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        yield await joined(pieces, self._row)

    def _parse(self, payload: bytes) -> _Answer:
        try:
            answer = _decode(payload)
        except (msgspec.DecodeError, RecursionError) as error:
            raise UpstreamError(
                f"Provider {self.name!r} answered with something that is not a transcript.", provider=self.name
            ) from error
        if answer.error or answer.type == "error":
            raise stream_error(self._row, msgspec.json.decode(payload))
        return answer


def _wav(request: TranscriptionRequest) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as wav:
        wav.setnchannels(1)
        wav.setsampwidth(2)
        wav.setframerate(request.rate)
        wav.writeframes(request.pcm)
    return file.getvalue()


def _usage(tokens: _Tokens | None) -> Usage | None:
    """Token counts; a usage in seconds has none."""
    if tokens is None or tokens.input_tokens is None:
        return None
    return Usage(input_tokens=tokens.input_tokens, output_tokens=tokens.output_tokens or 0)
