"""Speech from OpenAI and anything compatible (Kokoro-FastAPI, speaches). Row: base_url, api_key_env.

The vendor's limits: 4,096 characters for each request; PCM is 16-bit mono at 24,000 samples per second.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from functools import partial
from typing import Any

import msgspec

from adapters.http import HttpUpstream, bearer, read_start
from adapters.shortcut import Shortcut, shortened
from gateway.config import ProviderRow, Settings
from gateway.errors import UpstreamError
from gateway.events import AudioDelta, AudioEvent, AudioFormat, AudioStart
from gateway.ports import SpeechLimits
from gateway.request import SpeechRequest

DEFAULT_BASE_URL = "https://api.openai.com/v1"
DEFAULT_VOICE = "alloy"
RATE = 24_000
OTHER_TYPES = ("audio/mpeg", "audio/wav", "audio/ogg", "text/", "application/json")
OTHER_STARTS = (b"RIFF", b"ID3", b"OggS", b"fLaC")
"""What a server sends that does not know PCM. Played as PCM it would be noise."""


class OpenAISpeech:
    """A `SpeechProvider` over `POST {base_url}/audio/speech`."""

    limits = SpeechLimits(characters=4096)

    def __init__(self, row: ProviderRow, settings: Settings) -> None:
        self.name = row.name
        self._upstream = HttpUpstream(row, row.base_url or DEFAULT_BASE_URL, bearer(row))

    def synthesize(self, request: SpeechRequest) -> AsyncGenerator[AudioEvent, None]:
        return shortened(partial(self._reads, request))

    async def _reads(
        self, request: SpeechRequest, shortcut: Shortcut[AudioEvent]
    ) -> AsyncGenerator[Iterable[AudioEvent], None]:
        """The audio of each read of the body that was not taken."""
        body = msgspec.json.encode(_body(request))
        headers = {"content-type": "application/json"}
        async with self._upstream.send("POST", "/audio/speech", body=body, headers=headers) as response:
            piece = await read_start(response)
            if not piece:
                raise UpstreamError(f"Provider {self.name!r} answered without any audio.", provider=self.name)
            rate = self._rate(response.headers.get("content-type", ""), piece)
            yield (AudioStart(AudioFormat(rate=rate)),)
            async with aclosing(shortcut.read(response, _audio, first=piece)) as bursts:
                async for burst in bursts:
                    yield burst

    async def aclose(self) -> None:
        await self._upstream.aclose()

    def _rate(self, content_type: str, piece: bytes) -> int:
        """The true rate. Raises UpstreamError when the bytes are no PCM."""
        if content_type.startswith(OTHER_TYPES) or piece.startswith(OTHER_STARTS):
            raise UpstreamError(
                f"Provider {self.name!r} was asked for PCM and sent {content_type or 'something else'!r}.",
                provider=self.name,
            )
        declared = re.search(r"rate=(\d{4,6})\b", content_type)
        return int(declared[1]) if declared else RATE


def _audio(piece: bytes) -> tuple[AudioEvent]:
    return (AudioDelta(piece),)


def _body(request: SpeechRequest) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": request.model,
        "input": request.text,
        "voice": request.voice or DEFAULT_VOICE,
        "response_format": "pcm",
    }
    if request.speed != 1:
        body["speed"] = request.speed
    if request.instructions:
        body["instructions"] = request.instructions
    return body
