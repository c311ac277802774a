"""The embedded voice and the embedded transcriber, by the real engines: what is said is heard."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from difflib import SequenceMatcher
from itertools import pairwise

import numpy
import psutil
import pytest
import pytest_asyncio

from adapters.local_speech import LONGEST_PIECE, LocalSpeech
from adapters.local_transcription import LocalTranscription
from gateway.errors import InvalidRequest, Unsupported
from gateway.events import (
    AudioDelta,
    AudioFormat,
    AudioStart,
    Encoding,
    Finished,
    FinishReason,
    TextDelta,
)
from gateway.request import SpeechRequest, TranscriptionRequest
from tests.local_fixtures import ROW, SETTINGS, seconds_until

pytestmark = pytest.mark.asyncio(loop_scope="module")

SENTENCES = (
    "The quick brown fox jumps over the lazy dog. Every morning the old man walks along the river with his two dogs. "
    "Please bring the green bottle from the kitchen table. Nobody knows how the small boat crossed the ocean."
)
LONGEST_BLOCK = 0.05


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def voice() -> AsyncIterator[LocalSpeech]:
    provider = LocalSpeech(ROW, SETTINGS)
    await provider.warm()
    yield provider
    await provider.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def transcriber() -> AsyncIterator[LocalTranscription]:
    provider = LocalTranscription(ROW, SETTINGS)
    await provider.warm()
    yield provider
    await provider.aclose()


async def spoken(provider: LocalSpeech, text: str, **options: object) -> list[bytes]:
    request = SpeechRequest("speech", text, **options)  # type: ignore[arg-type]  # tests name the fields
    async with aclosing(provider.synthesize(request)) as events:
        start = await anext(events)
        assert start == AudioStart(AudioFormat(Encoding.PCM, 24_000, 1))
        audio = [event async for event in events]
    assert all(isinstance(event, AudioDelta) and event.data and len(event.data) % 2 == 0 for event in audio)
    return [event.data for event in audio if isinstance(event, AudioDelta)]


async def written(transcriber: LocalTranscription, pcm: bytes, rate: int = 24_000, **options: object) -> list[str]:
    request = TranscriptionRequest("transcription", pcm, rate, **options)  # type: ignore[arg-type]  # as above
    async with aclosing(transcriber.transcribe(request)) as events:
        seen = [event async for event in events]
    assert seen[-1] == Finished(FinishReason.STOP)
    return [event.text for event in seen[:-1] if isinstance(event, TextDelta)]


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9']+", text.lower())


def share_of_words(said: str, heard: str) -> float:
    blocks = SequenceMatcher(None, words(said), words(heard), autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks) / len(words(said))


async def test_what_is_spoken_is_written_down(voice: LocalSpeech, transcriber: LocalTranscription) -> None:
    pcm = b"".join(await spoken(voice, SENTENCES))
    lines = await written(transcriber, pcm)
    assert len(lines) > 1, "lines come while the audio is being heard"
    assert not lines[0].startswith(" ")
    assert share_of_words(SENTENCES, "".join(lines)) >= 0.9


@pytest.mark.parametrize("seconds", [3.85, 6.2, 8.1])
async def test_the_end_of_a_recording_is_not_lost(
    voice: LocalSpeech, transcriber: LocalTranscription, seconds: float
) -> None:
    pcm = b"".join(await spoken(voice, SENTENCES))[: int(seconds * 24_000) * 2]
    whole = "".join(await written(transcriber, pcm))
    before = "".join(await written(transcriber, pcm[: -24_000 * 3]))
    assert len(words(whole)) > len(words(before))


async def test_each_sentence_is_a_piece(voice: LocalSpeech) -> None:
    audio = await spoken(voice, "One. Two.\nThree, Dr. Smith!")
    assert len(audio) == 3


async def test_pieces_join_without_a_click(voice: LocalSpeech) -> None:
    pieces = [numpy.frombuffer(piece, "<i2").astype(int) for piece in await spoken(voice, SENTENCES)]
    steps = [abs(int(after[0] - before[-1])) for before, after in pairwise(pieces)]
    assert len(steps) == 3
    assert max(steps) < max(numpy.abs(numpy.diff(piece)).max() for piece in pieces) / 20


async def test_text_without_a_mark_comes_in_pieces(voice: LocalSpeech) -> None:
    audio = await spoken(voice, "sea and sky " * 100)
    assert len(audio) >= 1200 // LONGEST_PIECE
    assert max(len(data) for data in audio) < 30 * 48_000


@pytest.mark.parametrize("text", ["7" * 500, "1,234,567," * 40 + "8", "0." + "3" * 200, "W" * 300, "$9 " * 100])
async def test_text_that_the_engine_stumbles_over_is_spoken(voice: LocalSpeech, text: str) -> None:
    audio = await spoken(voice, text)
    assert max(len(data) for data in audio) < 30 * 48_000


@pytest.mark.parametrize("name", [None, "heart", "alloy", "verse"])
async def test_openai_voice_names_mean_the_one_voice(voice: LocalSpeech, name: str | None) -> None:
    assert await spoken(voice, "Yes.", voice=name)


async def test_another_voice_is_refused(voice: LocalSpeech) -> None:
    with pytest.raises(InvalidRequest, match="'emma'"):
        await spoken(voice, "Yes.", voice="emma")


async def test_speed_changes_the_length(voice: LocalSpeech) -> None:
    slow, fast = [sum(map(len, await spoken(voice, SENTENCES, speed=speed))) for speed in (0.5, 2.0)]
    assert slow > 2 * fast


@pytest.mark.parametrize("speed", [0.25, 0.49, 2.01, 4.0, float("nan")])
async def test_a_speed_out_of_range_is_refused(voice: LocalSpeech, speed: float) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await spoken(voice, "Yes.", speed=speed)
    assert caught.value.param == "speed"


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("안녕하세요.", "Hangul"),
        ("The word 안녕 means hello.", "Hangul"),
        ("今天天气真好。", "CJK"),
        ("カタカナ", "Katakana"),
        ("Привет", "Cyrillic"),
        ("The angle α is small.", "Greek"),
        ("שלום", "Hebrew"),
    ],
)
async def test_letters_of_other_scripts_are_refused(voice: LocalSpeech, text: str, script: str) -> None:
    with pytest.raises(Unsupported, match=f"English only.*{script}"):
        await spoken(voice, text)


@pytest.mark.parametrize("text", ["", "  \n", "😀", "?!… —"])
async def test_text_with_nothing_to_speak_is_refused(voice: LocalSpeech, text: str) -> None:
    with pytest.raises(Unsupported, match="Latin letters and digits"):
        await spoken(voice, text)


async def test_emoji_and_stray_signs_are_dropped(voice: LocalSpeech) -> None:
    assert await spoken(voice, "Hello 😀 ✓ world ★.")


async def longest_block(until: asyncio.Task[object]) -> float:
    """How long the event loop was held up at most until the task was done."""
    clock = asyncio.get_running_loop().time
    longest = 0.0
    while not until.done():
        before = clock()
        await asyncio.sleep(0.001)
        longest = max(longest, clock() - before - 0.001)
    await until
    return longest


async def test_synthesis_does_not_hold_up_the_event_loop(voice: LocalSpeech) -> None:
    # The least of three: other processes of the machine can hold up anybody.
    assert (
        min([await longest_block(asyncio.create_task(spoken(voice, SENTENCES * 3))) for _ in range(3)]) < LONGEST_BLOCK
    )


async def test_transcription_does_not_hold_up_the_event_loop(
    voice: LocalSpeech, transcriber: LocalTranscription
) -> None:
    pcm = b"".join(await spoken(voice, SENTENCES))
    blocks = [await longest_block(asyncio.create_task(written(transcriber, pcm))) for _ in range(3)]
    assert min(blocks) < LONGEST_BLOCK


async def test_closing_a_speech_stream_stops_synthesis(voice: LocalSpeech) -> None:
    clock = asyncio.get_running_loop().time
    stream = voice.synthesize(SpeechRequest("speech", SENTENCES * 200))
    assert isinstance(await anext(stream), AudioStart)
    assert isinstance(await anext(stream), AudioDelta)
    start = clock()
    await stream.aclose()
    assert await spoken(voice, "Yes.")
    assert clock() - start < 1, "the next stream waited for the closed one"


async def test_a_reader_that_is_cancelled_wakes_at_once(voice: LocalSpeech) -> None:
    clock = asyncio.get_running_loop().time
    reading = asyncio.create_task(spoken(voice, SENTENCES * 200))
    await asyncio.sleep(0.05)
    start = clock()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert clock() - start < 0.1


async def test_streams_take_turns(voice: LocalSpeech) -> None:
    long = asyncio.create_task(spoken(voice, SENTENCES * 20))
    assert await spoken(voice, "Yes.")
    assert not long.done()
    long.cancel()
    await asyncio.wait([long])


async def test_opened_and_closed_streams_leave_nothing_behind(
    voice: LocalSpeech, transcriber: LocalTranscription
) -> None:
    pcm = b"".join(await spoken(voice, "Yes. No."))

    async def open_and_close() -> None:
        async with aclosing(voice.synthesize(SpeechRequest("speech", "Yes. No."))) as audio:
            await anext(audio)
            await anext(audio)
        async with aclosing(transcriber.transcribe(TranscriptionRequest("t", pcm, 24_000))) as text:
            reading = asyncio.ensure_future(anext(text))
            await asyncio.sleep(0)
            reading.cancel()
            await asyncio.wait([reading])

    await open_and_close()
    process = psutil.Process()
    before = process.num_threads(), process.num_fds()
    tasks = len(asyncio.all_tasks())
    for _ in range(20):
        await asyncio.gather(*(open_and_close() for _ in range(10)))
    await seconds_until(lambda: (process.num_threads(), process.num_fds()) <= before, 2)
    assert len(asyncio.all_tasks()) <= tasks


async def test_closing_the_providers_ends_their_threads() -> None:
    process = psutil.Process()
    before = process.num_threads()
    voice, transcriber = LocalSpeech(ROW, SETTINGS), LocalTranscription(ROW, SETTINGS)
    await written(transcriber, b"".join(await spoken(voice, "Yes.")))
    assert process.num_threads() > before
    for provider in (voice, transcriber):
        await provider.aclose()
        await provider.aclose()
    await seconds_until(lambda: process.num_threads() <= before, 2)


@pytest.mark.parametrize("pcm", [b"", b"\0", b"\0\0" * 10, b"\0\0" * 48_000])
async def test_silence_is_no_text(transcriber: LocalTranscription, pcm: bytes) -> None:
    assert await written(transcriber, pcm) == []


@pytest.mark.parametrize("language", [None, "en", "en-US", "English"])
async def test_english_is_understood(transcriber: LocalTranscription, language: str | None) -> None:
    assert await written(transcriber, b"", language=language) == []


async def test_another_language_is_refused(transcriber: LocalTranscription) -> None:
    with pytest.raises(Unsupported, match="English only"):
        await written(transcriber, b"", language="ko")


async def test_closing_a_transcription_stops_it(voice: LocalSpeech, transcriber: LocalTranscription) -> None:
    pcm = b"".join(await spoken(voice, SENTENCES))
    clock = asyncio.get_running_loop().time
    stream = transcriber.transcribe(TranscriptionRequest("transcription", pcm * 20, 24_000))
    assert isinstance(await anext(stream), TextDelta)
    start = clock()
    await stream.aclose()
    assert clock() - start < 0.1
    assert await written(transcriber, b"\0\0" * 1000) == []
    assert clock() - start < 2, "the next stream waited for the closed one"
