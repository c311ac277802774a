"""Test tones, voices that yield given bytes, and a decoder to check what was encoded."""

from __future__ import annotations

import io
from collections.abc import AsyncGenerator, AsyncIterator, Iterable

import av
import numpy as np
import numpy.typing as npt

from gateway.events import AudioDelta, AudioEvent, AudioFormat, AudioStart, Finished
from gateway.ports import SpeechLimits
from gateway.request import SpeechRequest
from gateway.speech import synthesize

Samples = npt.NDArray[np.int16]


def tone(seconds: float, rate: int = 24_000, pitch: float = 440.0) -> Samples:
    times = np.arange(round(seconds * rate)) / rate
    return (np.sin(2 * np.pi * pitch * times) * 8_000).astype("<i2")


def cut(data: bytes, sizes: Iterable[int]) -> list[bytes]:
    """`data` in pieces of `sizes`, over and over."""
    pieces, order = [], list(sizes)
    position = turn = 0
    while position < len(data):
        size = order[turn % len(order)]
        pieces.append(data[position : position + size])
        position, turn = position + size, turn + 1
    return pieces


async def voice(pieces: Iterable[bytes], rate: int = 24_000) -> AsyncGenerator[AudioEvent, None]:
    yield AudioStart(AudioFormat(rate=rate))
    for piece in pieces:
        yield AudioDelta(piece)


async def heard(events: AsyncIterator[AudioEvent | Finished]) -> tuple[AudioFormat, list[bytes]]:
    """The one format and the deltas of `events`, which end as they ought to."""
    first = await anext(events)
    assert isinstance(first, AudioStart)
    deltas = []
    async for event in events:
        if isinstance(event, Finished):
            break
        assert isinstance(event, AudioDelta)
        deltas.append(event.data)
    assert not [event async for event in events]
    return first.format, deltas


def render(
    source: AsyncGenerator[AudioEvent, None], wanted: AudioFormat
) -> AsyncGenerator[AudioEvent | Finished, None]:
    """What a voice that gives `source` is heard as in the `wanted` format."""
    return synthesize(Given(source), SpeechRequest("voice", "Hello.", format=wanted))


class Given:
    """A voice that gives what it was given."""

    name = "given"
    limits = SpeechLimits(characters=100)

    def __init__(self, source: AsyncGenerator[AudioEvent, None]) -> None:
        self._source = source

    def synthesize(self, request: SpeechRequest) -> AsyncGenerator[AudioEvent, None]:
        return self._source

    async def aclose(self) -> None:
        """Nothing is held."""


def decoded(data: bytes) -> tuple[int, Samples]:
    """Rate and samples of an encoded mono file."""
    parts: list[npt.NDArray[np.generic]] = []
    with av.open(io.BytesIO(data), "r") as container:
        rate = container.streams.audio[0].rate
        resampler = av.AudioResampler(format="s16", layout="mono")
        for frame in container.decode(audio=0):
            parts += [part.to_ndarray()[0] for part in resampler.resample(frame)]
    return rate, np.concatenate(parts).astype(np.int16)


def largest_step(samples: Samples) -> int:
    return int(np.abs(np.diff(samples.astype(np.int32))).max())
