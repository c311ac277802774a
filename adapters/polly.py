"""Speech with Amazon Polly, as PCM while it is spoken. Row: region; optional endpoint_url, profile.

The upstream id is the engine (standard, neural, long-form, generative). Polly writes PCM at 8000 or 16000 samples per
second only, so that is the rate told here; the gateway resamples. One request takes 3000 characters. Polly has no
terminal marker: its answer is whole when the HTTP body is, so a body without a stated end is refused.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any
from xml.sax.saxutils import escape

import aiohttp
import msgspec

from adapters.aws import AwsUpstream
from adapters.http import read
from gateway.config import ProviderRow, Settings
from gateway.errors import InvalidRequest, NotFound, Truncated, UpstreamError
from gateway.events import AudioDelta, AudioEvent, AudioFormat, AudioStart
from gateway.ports import SpeechLimits
from gateway.request import SpeechRequest

DEFAULT_VOICES = {"standard": "Joanna", "neural": "Joanna", "long-form": "Ruth", "generative": "Ruth"}
"""By engine. A model row's `voice` goes before it: Korean is spoken by Seoyeon and Jihye."""
_NAMES = """
Aditi Adriano Ambre Amy Andres Aria Arjun Arlet Arthur Astrid Ayanda Beatrice Bianca Brian Burcu Camila Carla Carlos
Carmen Carolina Celine Chantal Conchita Cristiano Curtis Daniel Danielle Dora Elin Emma Enrique Ewa Filiz Florian
Gabrielle Geraint Giorgio Gregory Gwyneth Hala Hannah Hans Hiujin Hyunduk Ida Ines Isabelle Ivy Jacek Jan Jasmine
Jihye Jitka Joanna Joey Justin Kajal Karl Kazuha Kendra Kenneth Kevin Kiara Kimberly Laura Lea Lennart Leo Liam Lisa
Liv Lorenzo Lotte Lucia Lupe Mads Maja Marlene Mathieu Matthew Maxim Mia Miguel Mizuki Naja Nate Niamh Nicole Ola
Olivia Pedro Penelope Raveena Remi Ricardo Ruben Russell Ruth Sabrina Salli Seoyeon Sergio Sofie Stephen Suvi Takumi
Tatyana Thiago Tiffany Tina Tomoko Vicki Vitoria Zayd Zeina Zhiyu
"""
VOICES = tuple(_NAMES.split())
"""As botocore's model lists them; which engine has which voice is Polly's to say."""

_VOICE_NAMES = {name.casefold(): name for name in VOICES}

LONGEST_TEXT = 3000
LOW_RATE, HIGH_RATE = 8000, 16_000
SLOWEST, FASTEST = 20, 200
"""Per cent; the bounds of SSML's prosody rate in Polly."""


class Polly:
    """A `SpeechProvider` over `POST /v1/speech`."""

    limits = SpeechLimits(characters=LONGEST_TEXT, voices=VOICES)

    def __init__(self, row: ProviderRow, settings: Settings) -> None:
        self.name = row.name
        self._row = row
        self._upstream = AwsUpstream(row, "polly")

    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[AudioEvent, None]:
        body = speech_body(request)
        async with self._spoken(body) as response:
            self._upstream.demand_type(response, "audio/")
            self._demand_end(response)
            start = AudioStart(AudioFormat(rate=int(body["SampleRate"])))
            odd, spoken = b"", False
            async with aclosing(read(response, self._row)) as pieces:
                async for piece in pieces:
                    data = odd + piece
                    # A piece may end inside a 16-bit sample.
                    whole = len(data) & ~1
                    odd = data[whole:]
                    if whole and not spoken:
                        spoken = True
                        yield start
                    if whole:
                        yield AudioDelta(data[:whole])
        if odd or not spoken:
            raise Truncated(
                f"Provider {self.name!r} sent {'half a sample' if odd else 'no audio'} at the end.", provider=self.name
            )

    @asynccontextmanager
    async def _spoken(self, body: dict[str, Any]) -> AsyncIterator[aiohttp.ClientResponse]:
        """Polly's answer. It may have voices that this list has not, so an unknown name is Polly's to refuse."""
        voice = body["VoiceId"]
        try:
            async with self._upstream.post("/v1/speech", msgspec.json.encode(body)) as response:
                yield response
        except InvalidRequest as error:
            if voice in VOICES:
                raise
            raise InvalidRequest(
                f"Amazon Polly refuses the voice {voice!r}. Its voices are {', '.join(VOICES)}.",
                provider=self.name,
                param="voice",
            ) from error

    async def aclose(self) -> None:
        await self._upstream.aclose()

    def _demand_end(self, response: aiohttp.ClientResponse) -> None:
        if "content-length" not in response.headers and "transfer-encoding" not in response.headers:
            raise UpstreamError(
                f"Provider {self.name!r} does not say where its audio ends, so a broken answer could not be told.",
                provider=self.name,
            )


def speech_body(request: SpeechRequest) -> dict[str, Any]:
    """The body of SynthesizeSpeech. Raises InvalidRequest for a text that it cannot take, NotFound for an engine."""
    if request.model not in DEFAULT_VOICES:
        raise NotFound(
            f"Polly has no engine {request.model!r}; a model's upstream id is one of {', '.join(DEFAULT_VOICES)}.",
            code="model_not_found",
            param="model",
        )
    if not request.text.strip():
        raise InvalidRequest("There is no text to speak.", param="input")
    if len(request.text) > LONGEST_TEXT:
        raise InvalidRequest(
            f"Polly speaks at most {LONGEST_TEXT} characters at once; this text has {len(request.text)}.", param="input"
        )
    voice = str(request.voice or request.options.get("voice") or DEFAULT_VOICES[request.model])
    rate = LOW_RATE if request.format.rate <= LOW_RATE else HIGH_RATE
    return {
        "Engine": request.model,
        "OutputFormat": "pcm",
        "SampleRate": str(rate),
        "VoiceId": _VOICE_NAMES.get(voice.casefold(), voice),
        **_text(request),
    }


def _text(request: SpeechRequest) -> dict[str, str]:
    if request.speed == 1.0:
        return {"Text": request.text, "TextType": "text"}
    per_cent = max(SLOWEST, min(FASTEST, round(request.speed * 100)))
    ssml = f'<speak><prosody rate="{per_cent}%">{escape(request.text)}</prosody></speak>'
    return {"Text": ssml, "TextType": "ssml"}
