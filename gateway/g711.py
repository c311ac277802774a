"""G.711, the telephone's one byte per sample at 8 kHz: mu-law and A-law to and from signed 16-bit PCM.

Both directions are one look-up per sample in a table built from the ITU-T recommendation.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

G711_RATE = 8_000
Law = Literal["pcmu", "pcma"]
_Int = npt.NDArray[np.int64]

MU_BIAS, MU_CLIP = 0x84, 32_635
A_SEGMENT_ENDS = (0x1F, 0x3F, 0x7F, 0xFF, 0x1FF, 0x3FF, 0x7FF, 0xFFF)


def encode_g711(pcm: bytes, law: Law) -> bytes:
    """One byte for each sample of `pcm`."""
    table = _ENCODERS[law]
    encoded: bytes = table[np.frombuffer(pcm, dtype="<u2")].tobytes()
    return encoded


def decode_g711(data: bytes, law: Law) -> bytes:
    """Signed 16-bit little-endian samples, one for each byte of `data`."""
    table = _DECODERS[law]
    pcm: bytes = table[np.frombuffer(data, dtype=np.uint8)].tobytes()
    return pcm


def _mu_decoder() -> _Int:
    code = ~np.arange(256) & 0xFF
    magnitude = (((code & 0x0F) << 3) + MU_BIAS) << ((code & 0x70) >> 4)
    decoded: _Int = np.where(code & 0x80, MU_BIAS - magnitude, magnitude - MU_BIAS)
    return decoded


def _a_decoder() -> _Int:
    code = np.arange(256) ^ 0x55
    segment = (code & 0x70) >> 4
    magnitude = ((code & 0x0F) << 4) + np.where(segment == 0, 8, 0x108)
    magnitude = magnitude << np.maximum(segment - 1, 0)
    decoded: _Int = np.where(code & 0x80, magnitude, -magnitude)
    return decoded


def _mu_encoder(samples: _Int) -> _Int:
    sign = np.where(samples < 0, 0x80, 0)
    magnitude = np.minimum(np.abs(samples), MU_CLIP) + MU_BIAS
    exponent = np.floor(np.log2(magnitude)).astype(np.int64) - 7
    mantissa = (magnitude >> (exponent + 3)) & 0x0F
    encoded: _Int = ~(sign | (exponent << 4) | mantissa) & 0xFF
    return encoded


def _a_encoder(samples: _Int) -> _Int:
    mask = np.where(samples >= 0, 0xD5, 0x55)
    magnitude = np.where(samples >= 0, samples, -samples - 1) >> 3
    segment = np.searchsorted(A_SEGMENT_ENDS, magnitude)
    mantissa = (magnitude >> np.maximum(segment, 1)) & 0x0F
    return ((segment << 4) | mantissa) ^ mask


_SAMPLES = np.arange(65_536).astype(np.uint16).astype(np.int16).astype(np.int64)
_DECODERS = {"pcmu": _mu_decoder().astype("<i2"), "pcma": _a_decoder().astype("<i2")}
_ENCODERS = {"pcmu": _mu_encoder(_SAMPLES).astype(np.uint8), "pcma": _a_encoder(_SAMPLES).astype(np.uint8)}
