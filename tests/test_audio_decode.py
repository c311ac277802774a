"""Uploaded files become samples, and nothing else is taken."""

import io
import struct
from typing import cast

import av
import numpy as np
import pytest
from av.audio.stream import AudioStream

from gateway.audio import decode_audio
from gateway.errors import InvalidRequest, PayloadTooLarge
from tests.sounds import tone

FILES = {
    "wav": ("wav", "pcm_s16le"),
    "mp3": ("mp3", "libmp3lame"),
    "m4a": ("ipod", "aac"),
    "ogg": ("ogg", "libopus"),
    "webm": ("webm", "libopus"),
    "flac": ("flac", "flac"),
}


def file_of(name: str, seconds: float = 1.0, rate: int = 48_000) -> bytes:
    muxer, codec = FILES[name]
    sink = io.BytesIO()
    with av.open(sink, "w", format=muxer) as container:
        stream = cast(AudioStream, container.add_stream(codec, rate=rate, layout="mono"))
        frame = av.AudioFrame.from_ndarray(tone(seconds, rate).reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate = rate
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            container.mux(packet)
    return sink.getvalue()


@pytest.mark.parametrize("name", FILES)
def test_an_uploaded_file_becomes_mono_samples_at_the_asked_rate(name: str) -> None:
    samples = np.frombuffer(decode_audio(file_of(name), 16_000), dtype="<i2")
    assert abs(len(samples) - 16_000) < 1_000
    assert 6_000 < np.abs(samples[4_000:12_000]).max() < 10_000


def test_a_file_cut_off_at_its_end_still_gives_what_it_has() -> None:
    data = file_of("mp3", 2.0)
    assert len(decode_audio(data[: len(data) // 2], 16_000)) > 20_000


def test_a_stereo_file_is_mixed_down() -> None:
    left_right = np.stack([tone(0.5), tone(0.5)], axis=1).tobytes()
    header = b"RIFF" + struct.pack("<I", 36 + len(left_right)) + b"WAVEfmt "
    header += struct.pack("<IHHIIHH", 16, 1, 2, 24_000, 96_000, 4, 16) + b"data" + struct.pack("<I", len(left_right))
    samples = np.frombuffer(decode_audio(header + left_right, 24_000), dtype="<i2")
    assert len(samples) == 12_000
    assert np.abs(samples - tone(0.5)).max() <= 2


@pytest.mark.parametrize(
    "data",
    [b"", b"not audio at all", b"#EXTM3U\nfile:///etc/passwd\n", b"%PDF-1.7", b"\xff\xf1\x50\x80", b"RIFF"],
)
def test_what_is_no_audio_is_refused_with_the_list_of_what_is(data: bytes) -> None:
    with pytest.raises(InvalidRequest, match="wav, mp3, m4a, ogg, webm or flac") as caught:
        decode_audio(data, 16_000)
    assert caught.value.param == "file"


def test_a_damaged_file_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        decode_audio(b"OggS" + bytes(range(256)) * 4, 16_000)


def test_a_film_without_sound_is_refused() -> None:
    sink = io.BytesIO()
    with av.open(sink, "w", format="mp4") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width = stream.height = 32
        stream.pix_fmt = "yuv420p"
        frame = av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), dtype=np.uint8), format="rgb24")
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            container.mux(packet)
    with pytest.raises(InvalidRequest, match="no audio track"):
        decode_audio(sink.getvalue(), 16_000)


def test_a_small_file_that_plays_too_long_is_refused() -> None:
    with pytest.raises(PayloadTooLarge, match="longer than 3 seconds"):
        decode_audio(file_of("flac", 10.0), 16_000, longest_seconds=3)
