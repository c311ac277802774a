"""G.711 against FFmpeg's decoders and encoders."""

from __future__ import annotations

import io

import av
import numpy as np
import pytest

from gateway.g711 import Law, decode_g711, encode_g711

FFMPEG = {"pcmu": "mulaw", "pcma": "alaw"}
EVERY_CODE = bytes(range(256))
EVERY_SAMPLE = np.arange(-32_768, 32_768).astype("<i2")


def ffmpeg_decoded(data: bytes, law: Law) -> bytes:
    with av.open(io.BytesIO(data), "r", format=FFMPEG[law], options={"sample_rate": "8000"}) as container:
        return b"".join(frame.to_ndarray().tobytes() for frame in container.decode(audio=0))


@pytest.mark.parametrize("law", ["pcmu", "pcma"])
def test_every_byte_means_what_others_take_it_for(law: Law) -> None:
    assert decode_g711(EVERY_CODE, law) == ffmpeg_decoded(EVERY_CODE, law)


@pytest.mark.parametrize("law", ["pcmu", "pcma"])
def test_every_sample_becomes_about_the_nearest_that_there_is(law: Law) -> None:
    there_are = np.sort(np.frombuffer(decode_g711(EVERY_CODE, law), "<i2").astype(np.int64))
    heard = np.frombuffer(decode_g711(encode_g711(EVERY_SAMPLE.tobytes(), law), law), "<i2").astype(np.int64)
    places = np.clip(np.searchsorted(there_are, heard), 1, len(there_are) - 2)
    step = np.maximum(there_are[places + 1] - there_are[places], there_are[places] - there_are[places - 1])
    loud = np.abs(EVERY_SAMPLE.astype(np.int64)) > 32_000
    assert np.all((np.abs(heard - EVERY_SAMPLE) <= step / 2 + 8) | loud)
    assert np.abs(heard - EVERY_SAMPLE).max() <= 768


def test_silence_stays_silence() -> None:
    assert decode_g711(encode_g711(bytes(4), "pcmu"), "pcmu") == bytes(4)
    assert np.abs(np.frombuffer(decode_g711(encode_g711(bytes(4), "pcma"), "pcma"), "<i2")).max() == 8
