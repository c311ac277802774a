"""Uploaded audio files -> PCM. FFmpeg's readers are limited to the formats named here, and the length is bounded."""

from __future__ import annotations

import io
from collections.abc import Iterator

import av
from av.container import InputContainer

from gateway.errors import InvalidRequest, PayloadTooLarge

LONGEST_SECONDS = 60 * 60
SIGNATURES = {
    b"RIFF": "wav",
    b"OggS": "ogg",
    b"fLaC": "flac",
    b"\x1aE\xdf\xa3": "matroska,webm",
    b"ID3": "mp3",
}
READABLE = "wav, mp3, m4a, ogg, webm or flac"


def decode_audio(data: bytes, rate: int, *, longest_seconds: float = LONGEST_SECONDS) -> bytes:
    """The file `data` as signed 16-bit little-endian mono samples at `rate`. It blocks: call it in a thread.

    Raises InvalidRequest when it is no readable audio file, PayloadTooLarge when it plays longer than
    `longest_seconds`.
    """
    reader = _reader_of(data)
    if reader is None:
        raise InvalidRequest(f"The file is not audio in a known format; send {READABLE}.", param="file")
    try:
        with av.open(io.BytesIO(data), "r", format=reader) as container:
            pcm = _samples(container, rate, longest_seconds)
    except (av.FFmpegError, ValueError) as error:
        raise InvalidRequest(f"The audio file is damaged; send {READABLE}.", param="file") from error
    if not pcm:
        raise InvalidRequest("The audio file holds no sound.", param="file")
    return pcm


def _samples(container: InputContainer, rate: int, longest_seconds: float) -> bytes:
    if not container.streams.audio:
        raise InvalidRequest("The file has no audio track.", param="file")
    resampler = av.AudioResampler(format="s16", layout="mono", rate=rate)
    most_bytes = round(longest_seconds * rate) * 2
    pcm = bytearray()
    for frame in _frames(container):
        for resampled in resampler.resample(frame):
            pcm += resampled.to_ndarray().tobytes()
        # A small file may hold days of silence; stop before they fill the memory.
        if len(pcm) > most_bytes:
            raise PayloadTooLarge(f"The audio is longer than {longest_seconds:g} seconds.", param="file")
    for resampled in resampler.resample(None):
        pcm += resampled.to_ndarray().tobytes()
    return bytes(pcm)


def _frames(container: InputContainer) -> Iterator[av.AudioFrame]:
    """Every frame that can be decoded: tags after the sound and a cut off end are common and harmless."""
    for packet in container.demux(container.streams.audio[0]):
        try:
            frames = packet.decode()
        except av.InvalidDataError:
            continue
        for frame in frames:
            if isinstance(frame, av.AudioFrame):
                yield frame


def _reader_of(data: bytes) -> str | None:
    """FFmpeg's name of the format that `data` begins with. Playlists, which open other files, have none."""
    for signature, reader in SIGNATURES.items():
        if data.startswith(signature):
            return reader
    if data[4:8] == b"ftyp":
        return "mov,mp4,m4a,3gp,3g2,mj2"
    is_mpeg_frame = len(data) > 2 and data[0] == 0xFF and data[1] & 0xE0 == 0xE0
    # The layer bits are 0 in AAC frames, which begin the same way.
    return "mp3" if is_mpeg_frame and data[1] & 0x06 else None
