"""Realtime's audio formats: what is said about them, and base64 text to and from signed 16-bit mono PCM."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from gateway.errors import InvalidRequest
from gateway.events import AudioFormat, Encoding
from gateway.g711 import G711_RATE, decode_g711, encode_g711

PCM_RATE: Final = 24_000


class _Format(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class PcmFormat(_Format):
    """Signed 16-bit little-endian mono; the protocol knows no other rate."""

    type: Literal["audio/pcm"] = "audio/pcm"
    rate: Literal[24_000] = PCM_RATE


class PcmuFormat(_Format):
    type: Literal["audio/pcmu"]


class PcmaFormat(_Format):
    type: Literal["audio/pcma"]


WireFormat = Annotated[PcmFormat | PcmuFormat | PcmaFormat, Field(discriminator="type")]


def rate_of(format: WireFormat) -> int:
    """Samples per second."""
    return format.rate if isinstance(format, PcmFormat) else G711_RATE


def voice_format(format: WireFormat) -> AudioFormat:
    """What a voice is asked for, so that `encode` has nothing to resample."""
    return AudioFormat(Encoding.PCM, rate_of(format), 1)


def from_base64(text: str) -> bytes:
    """Raises InvalidRequest."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest("The audio is not valid base64.", code="invalid_value", param="audio") from None


def decode(format: WireFormat, data: bytes) -> bytes:
    """PCM at `rate_of(format)`."""
    match format:
        case PcmFormat():
            return data
        case PcmuFormat():
            return decode_g711(data, "pcmu")
        case PcmaFormat():
            return decode_g711(data, "pcma")


def encode(format: WireFormat, pcm: bytes) -> str:
    """PCM at `rate_of(format)` as base64 text of the format's bytes."""
    match format:
        case PcmFormat():
            data = pcm
        case PcmuFormat():
            data = encode_g711(pcm, "pcmu")
        case PcmaFormat():
            data = encode_g711(pcm, "pcma")
    return base64.b64encode(data).decode()
