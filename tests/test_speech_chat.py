"""A chat spoken while it runs: order of events, failures, leaving, bounds."""

import asyncio
from contextlib import aclosing

import pytest

from gateway.errors import (
    GatewayError,
    InternalError,
    Truncated,
    UpstreamError,
    UpstreamTimeout,
)
from gateway.events import (
    AudioDelta,
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
from gateway.patience import Patience
from gateway.pieces import MOST_TEXT_AHEAD
from gateway.request import SpeechRequest
from gateway.speech import MOST_EVENTS_AHEAD, speak
from gateway.wav import wav_header
from tests.voices import (
    FINISHED,
    REQUEST,
    FakeChat,
    FakeVoice,
    all_of,
    audio_of,
    settled,
    silence,
    text_of,
)

pytestmark = pytest.mark.usefixtures("no_task_is_left")

STARTED = Started("id", "model", 0)
WAV = SpeechRequest("voice", "", format=AudioFormat(Encoding.WAV))


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
        assert 0.9 < asyncio.get_running_loop().time() - began < 3
        assert voice.texts == ["Let me look"]


async def test_a_chat_that_is_kept_waiting_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.pieces.LONGEST_SILENCE", 0.02)
    voice, pause = FakeVoice(), asyncio.Event()
    chat = FakeChat(*["wo", "rd "] * MOST_EVENTS_AHEAD, pause, FINISHED)
    async with aclosing(speak(chat.events(), voice, REQUEST)) as events:
        await anext(events)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(voice.called.wait(), 0.2)
        received = [await anext(events) for _ in range(2 * MOST_EVENTS_AHEAD)]
        assert isinstance(received[-1], AudioStart)
    assert len(voice.texts) == 1
    assert voice.texts[0].endswith("word")


async def test_what_is_left_out_leaves_no_gap() -> None:
    voice = FakeVoice()
    chat = FakeChat("Hello 😀. Go to https://x.y/z, or (www.x.org) or 🎉!", FINISHED)
    await all_of(speak(chat.events(), voice, REQUEST))
    assert voice.texts == ["Hello.", "Go to, or or!"]


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
