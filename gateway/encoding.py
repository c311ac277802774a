"""Audio bytes as a voice yields them -> bytes in the asked format, without I/O and without losing a sample.

Samples stay whole whatever the pieces are; the duration never changes with the rate.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import soxr  # type: ignore[import-untyped]  # soxr ships no types

from gateway.containers import open_container, output_format
from gateway.errors import Unsupported, UpstreamError
from gateway.events import AudioFormat, Encoding
from gateway.wav import SAMPLE_BYTES

SHORTEST_PIECE, LONGEST_PIECE = 0.02, 0.2
"""Seconds. Shorter pieces are collected; longer ones are cut, so that playback starts early and no step is long."""


class SamplePieces:
    """Regroups bytes into pieces of whole samples; `dropped` counts the odd bytes left at the end."""

    def __init__(self, format: AudioFormat) -> None:
        self._frame_bytes = SAMPLE_BYTES * format.channels
        self._shortest = self._frame_bytes * round(format.rate * SHORTEST_PIECE)
        self._longest = self._frame_bytes * round(format.rate * LONGEST_PIECE)
        self._rest = bytearray()
        self.dropped = 0

    def is_piece(self, data: bytes) -> bool:
        """Whether `feed` would give `data` back as it is."""
        size = len(data)
        return self._shortest <= size <= self._longest and not size % self._frame_bytes and not self._rest

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The pieces that are ready; a too short rest waits for the next call."""
        self._rest += data
        if len(self._rest) < self._shortest:
            return
        whole = len(self._rest) - len(self._rest) % self._frame_bytes
        ready = bytes(self._rest[:whole])
        del self._rest[:whole]
        for start in range(0, whole, self._longest):
            yield ready[start : start + self._longest]

    def close(self) -> bytes:
        """The whole samples that still wait."""
        odd = len(self._rest) % self._frame_bytes
        self.dropped += odd
        rest = bytes(self._rest[: len(self._rest) - odd])
        self._rest.clear()
        return rest


class AudioEncoder:
    """Whole PCM samples of `source` -> bytes of `format`, the true form of `wanted`.

    Raises InvalidRequest for a format that cannot be made, Unsupported for one that this voice cannot give.
    """

    def __init__(self, source: AudioFormat, wanted: AudioFormat) -> None:
        self.format = output_format(wanted)
        self._container = open_container(self.format)
        self._resampler: soxr.ResampleStream | None = None
        self._source = source
        self._tune(source)

    @property
    def is_slow(self) -> bool:
        """Whether `feed` may take milliseconds and belongs in another thread."""
        return self.format.encoding not in (Encoding.PCM, Encoding.WAV)

    @property
    def is_through(self) -> bool:
        """Whether `feed` gives back what it is given."""
        return self._resampler is None and self._container.is_through

    def retune(self, source: AudioFormat) -> bytes:
        """What comes from here on is `source`; the output goes on as it was."""
        if source == self._source:
            return b""
        rest = self._resample(b"", last=True)
        self._tune(source)
        return self._container.feed(rest) if rest else b""

    def feed(self, pcm: bytes) -> bytes:
        """The bytes that `pcm` makes ready, often none."""
        samples = self._resample(pcm, last=False)
        return self._container.feed(samples) if samples else b""

    def close(self) -> bytes:
        """The last bytes: held samples, the encoder's delay, the container's end."""
        samples = self._resample(b"", last=True)
        return (self._container.feed(samples) if samples else b"") + self._container.close()

    def _tune(self, source: AudioFormat) -> None:
        if source.encoding is not Encoding.PCM:
            raise UpstreamError(f"A voice must give {Encoding.PCM.value}, this one gives {source.encoding.value}.")
        if source.channels != self.format.channels:
            raise Unsupported(
                f"This voice has {source.channels} channels; {self.format.channels} were asked for.", param="channels"
            )
        self._source = source
        self._resampler = None
        if source.rate != self.format.rate:
            self._resampler = soxr.ResampleStream(source.rate, self.format.rate, source.channels, dtype="int16")

    def _resample(self, pcm: bytes, *, last: bool) -> bytes:
        if self._resampler is None:
            return pcm
        samples = np.frombuffer(pcm, dtype="<i2")
        if self._source.channels > 1:
            samples = samples.reshape(-1, self._source.channels)
        resampled: bytes = self._resampler.resample_chunk(samples, last=last).astype("<i2").tobytes()
        return resampled
