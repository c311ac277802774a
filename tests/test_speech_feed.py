"""Text spoken while a client writes it, and what of a text was heard."""

import asyncio
from contextlib import aclosing

import pytest

from gateway.errors import (
    GatewayError,
    UpstreamError,
)
from gateway.events import (
    AudioDelta,
    AudioFormat,
)
from gateway.pieces import MOST_TEXT_AHEAD
from gateway.request import SpeechRequest
from gateway.speech import HeardText, SpeechFeed, speak, speak_feed
from tests.voices import (
    FINISHED,
    REQUEST,
    FakeChat,
    FakeVoice,
    all_of,
    settled,
    silence,
)

pytestmark = pytest.mark.usefixtures("no_task_is_left")


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
