import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import numpy as np
import pytest

from gateway.errors import (
    GatewayError,
    InternalError,
    InvalidRequest,
    Truncated,
    Unsupported,
    UpstreamError,
    UpstreamTimeout,
)
from gateway.events import (
    AudioDelta,
    AudioEvent,
    AudioFormat,
    AudioStart,
    Encoding,
    Failed,
    Finished,
    FinishReason,
    ReasoningDelta,
    Started,
    StreamEvent,
    TextDelta,
    Usage,
)
from gateway.request import SpeechRequest
from gateway.speaker import MOST_AUDIO_AHEAD, MOST_TEXT_AHEAD
from gateway.speech import MOST_EVENTS_AHEAD, HeardText, SpeechFeed, speak, speak_feed, synthesize
from gateway.streams import Patience
from gateway.wav import wav_header
from tests.sounds import heard, largest_step, tone
from tests.voices import FINISHED, FakeChat, FakeVoice, silence

REQUEST = SpeechRequest("voice", "")
STARTED = Started("id", "model", 0)
WAV = SpeechRequest("voice", "", format=AudioFormat(Encoding.WAV))


def asked(text: str, encoding: Encoding = Encoding.PCM, rate: int = 24_000) -> SpeechRequest:
    return SpeechRequest("voice", text, "heart", AudioFormat(encoding, rate), 1.5)


async def all_of(events: AsyncIterator[StreamEvent]) -> list[StreamEvent]:
    return [event async for event in events]


def audio_of(events: list[StreamEvent]) -> bytes:
    return b"".join(event.data for event in events if isinstance(event, AudioDelta))


def text_of(events: list[StreamEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


@pytest.fixture(autouse=True)
async def no_task_is_left() -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    yield
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    assert not left


# A whole text


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


# A chat


async def test_text_passes_unchanged_and_its_sentences_are_spoken() -> None:
    voice = FakeVoice()
    chat = FakeChat(STARTED, "## Hi\n", "**It", "** is [so](http://", "x.y). And *done*", FINISHED)
    events = await all_of(speak(chat.events(), voice, WAV))
    assert events[0] == STARTED
    assert text_of(events) == "## Hi\n**It** is [so](http://x.y). And *done*"
    assert voice.texts == ["Hi.", "It is so.", "And done"]
    assert audio_of(events) == wav_header(AudioFormat()) + silence("".join(voice.texts))
    assert sum(isinstance(event, AudioStart) for event in events) == 1
    assert events[-1] == FINISHED


async def test_text_is_not_delayed_by_the_voice() -> None:
    voice = FakeVoice()
    voice.gate.clear()
    chat = FakeChat(STARTED, *["One sentence. "] * 50, FINISHED)
    async with aclosing(speak(chat.events(), voice, REQUEST)) as events:
        received = [await asyncio.wait_for(anext(events), 1) for _ in range(51)]
        assert text_of(received) == "One sentence. " * 50
        voice.gate.set()
        rest = await all_of(events)
    assert audio_of(rest) == silence("One sentence." * 50)
    assert rest[-1] == FINISHED


async def test_the_first_clause_is_spoken_while_the_sentence_goes_on() -> None:
    more = asyncio.Event()
    voice = FakeVoice()
    chat = FakeChat("Well, that is a very good question, ", more, "I think.", FINISHED)
    async with aclosing(speak(chat.events(), voice, REQUEST)) as events:
        first = [await asyncio.wait_for(anext(events), 1) for _ in range(3)]
        assert isinstance(first[2], AudioDelta)
        more.set()
        await all_of(events)
    assert voice.texts == ["Well, that is a very good question,", "I think."]


async def test_chinese_is_spoken_during_a_pause_of_the_chat() -> None:
    pause = asyncio.Event()
    voice = FakeVoice(lambda _: bytes(16))
    chat = FakeChat("今天", "天气真", "好。我们", "出去吧。", pause, "再见。", FINISHED)
    async with aclosing(speak(chat.events(), voice, REQUEST)) as events:
        received: list[StreamEvent] = []
        while len(audio_of(received)) < 32:
            received.append(await asyncio.wait_for(anext(events), 2))
        assert voice.texts == ["今天天气真好。", "我们出去吧。"]
        pause.set()
        await all_of(events)
    assert voice.texts[2:] == ["再见。"]


async def test_text_without_a_stop_is_spoken_after_a_second_of_silence() -> None:
    pause = asyncio.Event()
    voice = FakeVoice()
    chat = FakeChat("Let me look", pause, FINISHED)
    began = asyncio.get_running_loop().time()
    async with aclosing(speak(chat.events(), voice, REQUEST)) as events:
        await anext(events)
        assert isinstance(await asyncio.wait_for(anext(events), 3), AudioStart)
        assert 0.9 < asyncio.get_running_loop().time() - began < 2
        assert voice.texts == ["Let me look"]


async def test_reasoning_is_passed_on_and_never_spoken() -> None:
    voice = FakeVoice()
    chat = FakeChat(ReasoningDelta("They want a greeting. "), "Hello.", FINISHED)
    events = await all_of(speak(chat.events(), voice, REQUEST))
    assert events[0] == ReasoningDelta("They want a greeting. ")
    assert voice.texts == ["Hello."]


async def test_an_answer_without_a_word_has_no_audio_and_finishes() -> None:
    finished = Finished(FinishReason.TOOL_CALLS, Usage(3, 4))
    events = await all_of(speak(FakeChat("😀", finished).events(), FakeVoice(), REQUEST))
    assert events == [TextDelta("😀"), finished]


async def test_the_usage_says_how_much_was_spoken() -> None:
    chat = FakeChat("**Hi!** ", Finished(FinishReason.STOP, Usage(1, 2)))
    events = await all_of(speak(chat.events(), FakeVoice(), REQUEST))
    assert events[-1] == Finished(FinishReason.STOP, Usage(1, 2, characters=3))


async def test_a_failing_voice_ends_the_turn_and_stops_the_chat() -> None:
    error = UpstreamError("the voice is down")
    chat = FakeChat("One. ", "Two. ", asyncio.Event(), FINISHED)
    events = await all_of(speak(chat.events(), FakeVoice(error=error), REQUEST))
    assert events == [TextDelta("One. "), TextDelta("Two. "), Failed(error)]
    assert chat.closed


async def test_a_voice_with_a_bug_ends_the_turn_without_its_words() -> None:
    events = await all_of(speak(FakeChat("One. ", FINISHED).events(), FakeVoice(error=ValueError("secret")), REQUEST))
    failed = events[-1]
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, InternalError)
    assert "secret" not in failed.error.message


@pytest.mark.parametrize("as_event", [True, False])
async def test_a_failing_chat_ends_the_turn_and_stops_the_voice(as_event: bool) -> None:
    error = UpstreamError("the chat is down")
    voice = FakeVoice()
    voice.gate.clear()
    script: list[StreamEvent | GatewayError] = [TextDelta("One. Two"), Failed(error) if as_event else error]
    events = await asyncio.wait_for(all_of(speak(FakeChat(*script).events(), voice, REQUEST)), 1)
    assert events == [TextDelta("One. Two"), Failed(error)]
    assert voice.closed == len(voice.requests)


async def test_a_chat_without_an_end_is_truncated() -> None:
    events = await all_of(speak(FakeChat("One. ").events(), FakeVoice(), REQUEST))
    failed = events[-1]
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, Truncated)


async def test_a_silent_voice_is_not_waited_for_for_ever() -> None:
    voice = FakeVoice()
    voice.gate.clear()
    patience = Patience(first_event=0.05, idle=0.05)
    events = await all_of(speak(FakeChat("One. ", FINISHED).events(), voice, REQUEST, patience=patience))
    failed = events[-1]
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, UpstreamTimeout)
    assert voice.closed == 1


@pytest.mark.parametrize("silent", ["chat", "voice", "both"])
async def test_leaving_closes_chat_and_voice_at_once(silent: str) -> None:
    voice = FakeVoice(lambda text: bytes(480_000))
    if silent != "chat":
        voice.gate.clear()
    stuck = [asyncio.Event()] if silent != "voice" else []
    chat = FakeChat("One sentence. ", *stuck, *["More of it. "] * 1_000, FINISHED)
    events = speak(chat.events(), voice, REQUEST)
    await anext(events)
    await voice.called.wait()
    await asyncio.wait_for(events.aclose(), 0.5)
    assert chat.closed
    assert voice.closed == len(voice.requests) == 1


async def test_leaving_before_the_first_token_closes_the_chat() -> None:
    chat = FakeChat(asyncio.Event())
    reading = asyncio.create_task(all_of(speak(chat.events(), FakeVoice(), REQUEST)))
    await settled()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert chat.closed


async def test_a_reader_that_takes_nothing_stops_the_chat() -> None:
    chat = FakeChat(*["Some words here. "] * 10_000, FINISHED)
    async with aclosing(speak(chat.events(), FakeVoice(), REQUEST)) as events:
        await anext(events)
        await settled()
        assert chat.read <= MOST_EVENTS_AHEAD + 2


async def test_a_voice_that_is_far_behind_stops_the_chat() -> None:
    voice = FakeVoice()
    voice.gate.clear()
    sentence = "Some words here. "
    chat = FakeChat(*[sentence] * 10_000, FINISHED)
    async with aclosing(speak(chat.events(), voice, REQUEST)) as events:
        reading = asyncio.create_task(all_of(events))
        await settled(10_000)
        reading.cancel()
        await asyncio.wait([reading])
        assert chat.read * len(sentence) < MOST_TEXT_AHEAD * 1.2
    assert chat.closed


# What was heard


async def test_what_was_heard_is_cut_at_a_word_of_the_piece_that_was_interrupted() -> None:
    said = HeardText()
    chat = FakeChat("First one. Second sentence with words. ", "Third. ", FINISHED)
    async with aclosing(speak(chat.events(), FakeVoice(), REQUEST, heard=said)) as events:
        received = 0
        async for event in events:
            received += len(event.data) if isinstance(event, AudioDelta) else 0
            if received >= len(silence("First one.Second sentence w")):
                break
    assert said.text in ("First one. Second sentence", "First one. Second sentence with")


async def test_everything_was_heard_when_the_turn_is_over() -> None:
    said = HeardText()
    chat = FakeChat("**First** one. Second! ", "제목입니다. 今日は。", FINISHED)
    await all_of(
        speak(chat.events(), FakeVoice(), SpeechRequest("voice", "", format=AudioFormat(rate=16_000)), heard=said)
    )
    assert said.text == "First one. Second! 제목입니다. 今日は。"


async def test_nothing_was_heard_before_the_first_audio() -> None:
    said = HeardText()
    async with aclosing(speak(FakeChat("One. ", asyncio.Event()).events(), FakeVoice(), REQUEST, heard=said)) as events:
        await anext(events)
    assert said.text == ""


def test_a_piece_without_spaces_is_cut_between_characters() -> None:
    said = HeardText()
    said.begin("今日はいい天気ですね。", 0)
    said.end(1.1)
    said.hear(0.55)
    assert said.text == "今日はいい"


# A feed


async def test_a_feed_is_spoken_while_it_is_written() -> None:
    voice, feed = FakeVoice(), SpeechFeed()
    async with aclosing(speak_feed(feed, voice, REQUEST)) as events:
        await feed.append("Hello the")
        await feed.append("re. And")
        first = [await asyncio.wait_for(anext(events), 1) for _ in range(2)]
        assert isinstance(first[1], AudioDelta)
        assert voice.texts == ["Hello there."]
        await feed.append(" more")
        await feed.flush()
        await asyncio.wait_for(anext(events), 0.5)
        await feed.append("of it")
        feed.end()
        await all_of(events)
    assert voice.texts == ["Hello there.", "And more", "of it"]


async def test_appending_waits_while_nobody_listens() -> None:
    feed = SpeechFeed()
    written = 0

    async def write() -> None:
        nonlocal written
        for _ in range(1_000):
            await feed.append("Some words here. " * 100)
            written += 1_700

    async with aclosing(speak_feed(feed, FakeVoice(), REQUEST)) as events:
        await feed.append("Start. ")
        await anext(events)
        writing = asyncio.create_task(write())
        await settled(10_000)
        assert 0 < written < 3 * MOST_TEXT_AHEAD
    await asyncio.wait_for(writing, 0.5)
    await asyncio.wait_for(feed.append("nobody hears this"), 0.5)


async def test_a_writer_that_waits_goes_on_when_the_speech_fails() -> None:
    feed = SpeechFeed()

    async def write() -> None:
        while not feed._closed:
            await feed.append("Some words here. " * 100)

    writing = asyncio.create_task(write())
    with pytest.raises(UpstreamError):
        await all_of(speak_feed(feed, FakeVoice(error=UpstreamError("down")), REQUEST))
    await asyncio.wait_for(writing, 1)


async def test_text_after_the_end_is_a_conflict() -> None:
    feed = SpeechFeed()
    feed.end()
    with pytest.raises(GatewayError, match="has ended"):
        await feed.append("more")
    assert await all_of(speak_feed(feed, FakeVoice(), REQUEST)) == []


async def settled(turns: int = 200) -> None:
    """Let every task run until it waits for somebody else."""
    for _ in range(turns):
        await asyncio.sleep(0)
