"""Speech is told from tones, noise and silence, in windows of 32 ms whatever the pieces are."""

from __future__ import annotations

import numpy as np
import pytest
from hibari import Hibari

from gateway.voice_activity import WINDOW_MS, VoiceActivity
from tests.sounds import cut, tone


@pytest.fixture(scope="module")
def speech() -> bytes:
    audio = Hibari(voice="heart")("The quick brown fox jumps over the lazy dog.")
    return bytes((np.clip(audio, -1, 1) * 32767).astype("<i2").tobytes())


async def test_speech_is_found(speech: bytes) -> None:
    found = await VoiceActivity(24_000).feed(speech)
    assert len(found) == pytest.approx(len(speech) / 48 / WINDOW_MS, abs=2)
    assert sum(probability > 0.5 for probability in found) > 0.7 * len(found)


async def test_pieces_of_any_size_are_one_stream(speech: bytes) -> None:
    listener, found = VoiceActivity(24_000), list[float]()
    for piece in cut(speech, (960, 2, 4_798)):
        found += await listener.feed(piece)
    whole = await VoiceActivity(24_000).feed(speech)
    assert found == pytest.approx(whole[: len(found)], abs=0.05)


@pytest.mark.parametrize("rate", [8_000, 16_000, 24_000])
async def test_tones_noise_and_silence_are_no_speech(rate: int) -> None:
    noise = np.random.default_rng(1).normal(scale=2_000, size=rate).astype("<i2")
    for sound in (tone(1.0, rate).tobytes(), noise.tobytes(), bytes(2 * rate)):
        assert max(await VoiceActivity(rate).feed(sound)) < 0.3
