"""The WAV header of a stream whose length is not known yet."""

from __future__ import annotations

import struct

from gateway.events import AudioFormat

SAMPLE_BYTES = 2
UNKNOWN_SIZE = 0xFFFFFFFF
"""Readers take this as "until the end"; 0 makes Python's `wave` and libsndfile play nothing."""

PCM_TAG = 1


def wav_header(format: AudioFormat) -> bytes:
    """The 44 bytes before 16-bit samples of `format.rate` and `format.channels`, both sizes unknown."""
    frame_bytes = SAMPLE_BYTES * format.channels
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF",
        UNKNOWN_SIZE,
        b"WAVE",
        b"fmt ",
        16,
        PCM_TAG,
        format.channels,
        format.rate,
        format.rate * frame_bytes,
        frame_bytes,
        8 * SAMPLE_BYTES,
        b"data",
        UNKNOWN_SIZE,
    )
