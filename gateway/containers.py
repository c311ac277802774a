"""PCM into the bytes of one encoding, piece by piece: one header or container per stream, frames as they are made.

The encoders are FFmpeg's (PyAV). MP3 has no Xing header, since its sizes would have to be written back at the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, cast

import av
import numpy as np
from av.audio.stream import AudioStream
from msgspec.structs import replace

from gateway.errors import InvalidRequest
from gateway.events import AudioFormat, Encoding
from gateway.wav import SAMPLE_BYTES, wav_header

CONTENT_TYPES = {
    Encoding.PCM: "audio/pcm",
    Encoding.WAV: "audio/wav",
    Encoding.MP3: "audio/mpeg",
    Encoding.OPUS: "audio/opus",
    Encoding.FLAC: "audio/flac",
    Encoding.AAC: "audio/aac",
}
OPUS_RATE = 48_000
"""Opus decodes at this rate whatever went in, so it is the only true one to say."""

MPEG_RATES = (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
LOWEST_RATE, HIGHEST_RATE = 8_000, 96_000
MOST_CHANNELS = 2


class Container(Protocol):
    """Takes whole samples at the output's rate, gives the bytes that are ready; `close` gives the last ones."""

    @property
    def is_through(self) -> bool:
        """Whether `feed` gives back what it is given."""
        ...

    def feed(self, pcm: bytes) -> bytes: ...

    def close(self) -> bytes: ...


def content_type(encoding: Encoding) -> str:
    """The media type that HTTP says of audio in `encoding`."""
    return CONTENT_TYPES[encoding]


def output_format(wanted: AudioFormat) -> AudioFormat:
    """What the bytes will truly be when `wanted` is asked for. Raises InvalidRequest for what cannot be made."""
    if not 1 <= wanted.channels <= MOST_CHANNELS:
        raise InvalidRequest(f"Audio can have 1 or 2 channels, not {wanted.channels}.", param="channels")
    if not LOWEST_RATE <= wanted.rate <= HIGHEST_RATE:
        raise InvalidRequest(
            f"A rate of {wanted.rate} is not possible; audio has {LOWEST_RATE} to {HIGHEST_RATE} samples per second.",
            param="rate",
        )
    if wanted.encoding is Encoding.OPUS:
        return replace(wanted, rate=OPUS_RATE)
    if wanted.encoding in (Encoding.MP3, Encoding.AAC) and wanted.rate not in MPEG_RATES:
        rates = ", ".join(str(rate) for rate in MPEG_RATES)
        raise InvalidRequest(
            f"{wanted.encoding.value} cannot have a rate of {wanted.rate}; its rates are {rates}.", param="rate"
        )
    return wanted


def open_container(format: AudioFormat) -> Container:
    """The container for `format`, which `output_format` has given."""
    match format.encoding:
        case Encoding.PCM:
            return _Plain()
        case Encoding.WAV:
            return _Plain(wav_header(format))
        case _:
            return _Encoded(format)


class _Plain:
    """Bytes as they come, after a header that goes out with the first of them."""

    def __init__(self, header: bytes = b"") -> None:
        self._header = header

    @property
    def is_through(self) -> bool:
        return not self._header

    def feed(self, pcm: bytes) -> bytes:
        header, self._header = self._header, b""
        return header + pcm

    def close(self) -> bytes:
        return self.feed(b"")


@dataclass(frozen=True, slots=True)
class _Codec:
    """How FFmpeg makes an encoding: its muxer, its encoder, bits per second (None: as it likes) and muxer options."""

    muxer: str
    encoder: str
    bit_rate: int | None = None
    options: dict[str, str] = field(default_factory=dict)


CODECS = {
    Encoding.MP3: _Codec("mp3", "libmp3lame", 64_000, {"write_xing": "0"}),
    # Ogg's own page length is one second, which nobody wants to wait for.
    Encoding.OPUS: _Codec("ogg", "libopus", 48_000, {"page_duration": "60000"}),
    Encoding.FLAC: _Codec("flac", "flac"),
    Encoding.AAC: _Codec("adts", "aac", 64_000),
}


class _Sink:
    """A file that can only be written to, so that a muxer never goes back."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        data = b"".join(self._parts)
        self._parts.clear()
        return data


class _Encoded:
    """One FFmpeg encoder and muxer. It is opened by the first samples, since that takes milliseconds."""

    is_through = False

    def __init__(self, format: AudioFormat) -> None:
        self._format = format
        self._layout = "mono" if format.channels == 1 else "stereo"
        self._sink = _Sink()
        self._samples = 0
        self._container: av.container.OutputContainer | None = None
        self._stream: AudioStream | None = None

    def feed(self, pcm: bytes) -> bytes:
        if pcm:
            self._encode(self._frame(pcm))
        return self._sink.take()

    def close(self) -> bytes:
        self._encode(None)
        container, self._container, self._stream = self._container, None, None
        if container is not None:
            container.close()
        return self._sink.take()

    def _encode(self, frame: av.AudioFrame | None) -> None:
        if self._container is None or self._stream is None:
            self._container, self._stream = self._open()
        for packet in self._stream.encode(frame):
            self._container.mux(packet)

    def _frame(self, pcm: bytes) -> av.AudioFrame:
        samples = np.frombuffer(pcm, dtype="<i2").reshape(1, -1)
        frame = av.AudioFrame.from_ndarray(samples, format="s16", layout=self._layout)
        frame.sample_rate = self._format.rate
        frame.pts = self._samples
        self._samples += len(pcm) // (SAMPLE_BYTES * self._format.channels)
        return frame

    def _open(self) -> tuple[av.container.OutputContainer, AudioStream]:
        codec = CODECS[self._format.encoding]
        options = {**codec.options, "flush_packets": "1"}
        container = av.open(self._sink, "w", format=codec.muxer, options=options)
        stream = cast(AudioStream, container.add_stream(codec.encoder, rate=self._format.rate, layout=self._layout))
        if codec.bit_rate is not None:
            stream.bit_rate = codec.bit_rate * self._format.channels
        return container, stream
