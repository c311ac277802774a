"""The embedded voice, without key and network: hibari-tts, English, 24 kHz. OpenAI's voice names mean its one voice.

Each sentence is one `AudioDelta`, synthesized in a thread when the one before has been taken. Of several listeners, the
one who would first have nothing left to hear is served first.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator
from functools import lru_cache
from typing import Any

import numpy
from hibari import SAMPLE_RATE, Hibari

from adapters.local_english import pieces, speakable
from adapters.local_thread import EngineThread
from gateway.config import ProviderRow, Settings
from gateway.errors import InvalidRequest
from gateway.events import AudioDelta, AudioEvent, AudioFormat, AudioStart, Encoding
from gateway.ports import SpeechLimits
from gateway.request import SpeechRequest

VOICE = "heart"
"""The only voice inside the package; the engine would download any other one at run time."""
OPENAI_VOICES = (
    *("alloy", "ash", "ballad", "cedar", "coral", "echo", "fable"),
    *("marin", "nova", "onyx", "sage", "shimmer", "verse"),
)
SLOWEST, FASTEST = 0.5, 2.0

BYTES_PER_SECOND = 2 * SAMPLE_RATE

LONGEST_PIECE = 220
LONGEST_PHONEMES = 400
"""Bounds of one step of the thread: 600 words without a mark would be one step of 17 s."""


class LocalSpeech:
    """A `SpeechProvider` on one thread of its own. Closing a stream ends it after the step at work (at most 0.5 s)."""

    limits = SpeechLimits(voices=(VOICE, *OPENAI_VOICES))

    def __init__(self, row: ProviderRow, settings: Settings) -> None:
        self.name = row.name
        self._thread = EngineThread("local-speech")

    async def warm(self) -> None:
        """Have the voice loaded before the first request."""
        await self._thread.run(_engine)

    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[AudioEvent, None]:
        _check(request)
        text = speakable(request.text)
        yield AudioStart(AudioFormat(Encoding.PCM, SAMPLE_RATE, 1))
        due = request.needed_at or time.monotonic()
        sentences = _spoken(text, request.speed)
        while pcm := await self._thread.run_by(due, next, sentences, b""):
            yield AudioDelta(pcm)
            due += len(pcm) / BYTES_PER_SECOND

    async def aclose(self) -> None:
        await self._thread.aclose()


def _check(request: SpeechRequest) -> None:
    if request.voice and request.voice not in LocalSpeech.limits.voices:
        raise InvalidRequest(
            f"There is no voice {request.voice!r}; the embedded voice is {VOICE!r}, and OpenAI's names mean it too.",
            param="voice",
        )
    if not SLOWEST <= request.speed <= FASTEST:
        raise InvalidRequest(
            f"The embedded voice speaks at a speed from {SLOWEST} to {FASTEST}, not {request.speed:g}.", param="speed"
        )


@lru_cache(maxsize=1)
def _engine() -> Any:
    """The process's one engine, with its pronunciation tables loaded."""
    engine = Hibari(voice=VOICE)
    engine("Ready.")
    return engine


def _spoken(text: str, speed: float) -> Iterator[bytes]:
    """The audio of each sentence; every step of the iterator belongs in the thread."""
    for piece in _cut(text):
        for phonemes in _phonemes(piece):
            if pcm := _pcm(phonemes, speed):
                yield pcm


def _cut(text: str) -> list[str]:
    sentences = _engine().split_sentences(text)
    return [piece for sentence in sentences for piece in pieces(sentence, LONGEST_PIECE)]


def _phonemes(piece: str) -> list[str]:
    """Numbers and signs take many more phonemes than characters, so the bound is applied to these once more."""
    return [part for phonemes in _engine().phonemize(piece) for part in pieces(phonemes, LONGEST_PHONEMES)]


def _pcm(phonemes: str, speed: float) -> bytes:
    audio = _engine().from_phonemes(phonemes, speed)
    pcm: bytes = (numpy.clip(audio, -1.0, 1.0) * 32767.0).astype("<i2").tobytes()
    return pcm
