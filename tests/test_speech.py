"""A whole text as audio: its calls, its order, its one header, its bounds."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import numpy as np
import pytest

from gateway.errors import (
    InvalidRequest,
    Unsupported,
    UpstreamError,
)
from gateway.events import (
    AudioDelta,
    AudioEvent,
    AudioFormat,
    AudioStart,
    Encoding,
)
from gateway.request import SpeechRequest
from gateway.speaker import MOST_AUDIO_AHEAD
from gateway.speech import synthesize
from tests.sounds import heard, largest_step, tone
from tests.voices import FakeVoice, all_of, settled, silence

pytestmark = pytest.mark.usefixtures("no_task_is_left")


def asked(text: str, encoding: Encoding = Encoding.PCM, rate: int = 24_000) -> SpeechRequest:
    return SpeechRequest("voice", text, "heart", AudioFormat(encoding, rate), 1.5)


async def test_a_short_text_is_one_call_with_everything_that_was_asked() -> None:
    voice = FakeVoice()
    format, deltas = await heard(synthesize(voice, asked("**One.** Two!\nThree?")))
    assert voice.requests == [asked("One. Two! Three?")]
    assert format == AudioFormat()
    assert b"".join(deltas) == silence("One. Two! Three?")


async def test_a_long_text_is_cut_below_the_limit_in_order_under_one_header() -> None:
    voice = FakeVoice(characters=4_096)
    text = "This is a sentence. " * 200 + "word " * 1_000 + "End."
    format, deltas = await heard(synthesize(voice, asked(text, Encoding.WAV)))
    data = b"".join(deltas)
    assert all(len(piece) <= 4_096 for piece in voice.texts)
    assert " ".join(voice.texts).split() == text.split()
    assert format.encoding is Encoding.WAV
    assert data.count(b"RIFF") == 1
    assert len(data) == 44 + sum(len(silence(piece)) for piece in voice.texts)


async def test_a_long_text_is_packed_into_few_calls() -> None:
    voice = FakeVoice(characters=1_000)
    await heard(synthesize(voice, asked("This is a sentence. " * 100)))
    assert len(voice.texts) <= 3


async def test_odd_pieces_of_a_voice_arrive_whole() -> None:
    voice = FakeVoice(lambda _: bytes(range(17)), sizes=[3, 5, 1, 7])
    _, deltas = await heard(synthesize(voice, asked("Hello.")))
    assert b"".join(deltas) == bytes(range(16))
    assert all(len(delta) % 2 == 0 for delta in deltas)


async def test_joins_between_calls_make_no_click_even_when_the_rate_changes() -> None:
    lengths = iter([0.5, 0.5, 0.5])
    rates = iter([24_000, 16_000, 22_050])
    voice = FakeVoice(
        lambda _: tone(next(lengths), next(rates)).tobytes(), rates=[24_000, 16_000, 22_050], sizes=[777], characters=8
    )
    format, deltas = await heard(synthesize(voice, asked("One one. Two two. Three.")))
    samples = np.frombuffer(b"".join(deltas), dtype="<i2")
    assert format.rate == 24_000
    assert abs(len(samples) - 36_000) <= 4
    # A whole number of periods each, so that the joined tone is smooth but for the edge of the resampling filter.
    assert largest_step(samples) <= largest_step(tone(0.5)) * 1.4


@pytest.mark.parametrize("text", ["", "  \n", "...", "😀🎉", "```\ncode\n```", "| a |\n|---|", "https://x.y/z", "—"])
async def test_a_text_without_a_word_is_refused_before_any_audio(text: str) -> None:
    voice = FakeVoice()
    with pytest.raises(Unsupported, match="nothing that can be spoken"):
        await anext(synthesize(voice, asked(text)))
    assert voice.requests == []


async def test_a_failing_voice_raises_after_the_audio_before_it() -> None:
    error = UpstreamError("down")
    voice = FakeVoice(characters=10, error=error, failing=2)
    events = synthesize(voice, asked("One one. Two two."))
    assert isinstance(await anext(events), AudioStart)
    with pytest.raises(UpstreamError, match="down"):
        await all_of(events)


async def test_a_format_that_cannot_be_made_is_refused_before_the_voice_is_called() -> None:
    voice = FakeVoice()
    with pytest.raises(InvalidRequest, match="mp3"):
        await anext(synthesize(voice, asked("Hi.", Encoding.MP3, 12_345)))
    assert voice.requests == []


async def test_the_voice_is_never_more_than_one_piece_ahead() -> None:
    voice = FakeVoice(lambda _: bytes(960), characters=8)
    async with aclosing(synthesize(voice, asked("One one. Two two. Six six. Ten ten. End end."))) as events:
        taken = 0
        async for event in events:
            await settled()
            taken += isinstance(event, AudioDelta)
            assert len(voice.requests) <= taken + 2
    assert len(voice.requests) == 5


async def test_a_slow_listener_stops_a_fast_voice() -> None:
    made = 0

    def endless() -> AsyncGenerator[AudioEvent, None]:
        async def audio() -> AsyncGenerator[AudioEvent, None]:
            nonlocal made
            yield AudioStart(AudioFormat())
            while True:
                made += 9_600
                yield AudioDelta(bytes(9_600))

        return audio()

    voice = FakeVoice()
    voice.synthesize = lambda request: endless()  # type: ignore[method-assign]  # a voice that never ends
    async with aclosing(synthesize(voice, asked("Hello."))) as events:
        await anext(events)
        await settled()
        assert made <= MOST_AUDIO_AHEAD + 3 * 9_600


async def test_leaving_a_silent_voice_closes_it() -> None:
    voice = FakeVoice()
    voice.gate.clear()
    reading = asyncio.create_task(all_of(synthesize(voice, asked("Hello."))))
    await voice.called.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert voice.closed == 1
