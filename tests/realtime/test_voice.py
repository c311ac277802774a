"""Speaking and listening over a running service: what is heard, how fast an answer falls silent, and what is left."""

from __future__ import annotations

import asyncio
import difflib
import re
import time

import numpy as np
import psutil
import pytest
import soxr  # type: ignore[import-untyped]  # ships no types

from gateway.g711 import Law, decode_g711, encode_g711
from tests.realtime.conftest import HEARD, LONG, QUESTION, silence
from tests.realtime.sessions import Event, Realtime, audio_of, kinds, realtime
from tests.running import Service
from tests.test_embedded_service import transcript
from tests.test_leaving import wait_for

FRAME = 960
"""Bytes of 20 ms."""
TRANSCRIBED = {"input": {"transcription": {"model": "whisper-1"}}}


def right(said: str, heard: str) -> float:
    """The share of the words of `said` that are in `heard`, in order."""
    words, found = (re.findall(r"[a-z0-9']+", text.lower()) for text in (said, heard))
    matching = difflib.SequenceMatcher(None, words, found).get_matching_blocks()
    return sum(block.size for block in matching) / len(words)


async def microphone(session: Realtime, audio: bytes, until: asyncio.Event) -> None:
    """Send `audio` at the speed of speech, frame by frame."""
    began = time.monotonic()
    for number, start in enumerate(range(0, len(audio), FRAME)):
        if until.is_set():
            return
        await asyncio.sleep(max(0.0, began + number * 0.02 - time.monotonic()))
        await session.append(audio[start : start + FRAME])


async def test_a_conversation_without_any_cloud(talking: Service, question: bytes) -> None:
    """Embedded voice in, transcript, scripted answer, embedded voice out, transcript."""
    async with realtime(talking, "?model=answer") as session:
        await session.update(audio=TRANSCRIBED)
        await session.append(silence(0.3) + question + silence(1.0))
        events = await session.until("response.done")
        found = [kind for kind in kinds(events) if kind.startswith("input_audio_buffer")]
        assert found == [f"input_audio_buffer.{what}" for what in ("speech_started", "speech_stopped", "committed")]
        (written,) = [event["transcript"] for event in events if event["type"].endswith("transcription.completed")]
        assert right(QUESTION, written) >= 0.9
        heard = await transcript(b"".join(audio_of(events)), 24_000)
        assert right(HEARD, heard) >= 0.9
        assert events[-1]["response"]["output"][0]["content"][0]["transcript"] == HEARD


@pytest.mark.parametrize("law", ["pcmu", "pcma"])
async def test_the_telephone_hears_and_is_heard(talking: Service, question: bytes, law: Law) -> None:
    async with realtime(talking, "?model=answer") as session:
        telephone = {"format": {"type": f"audio/{law}"}}
        await session.update(audio={"input": telephone | TRANSCRIBED["input"], "output": telephone})

        pcm = soxr.resample(np.frombuffer(silence(0.3) + question + silence(1.0), "<i2"), 24_000, 8_000).astype("<i2")
        await session.append(encode_g711(pcm.tobytes(), law))
        events = await session.until("response.done")
        (written,) = [event["transcript"] for event in events if event["type"].endswith("transcription.completed")]
        assert right(QUESTION, written) >= 0.7
        heard = await transcript(decode_g711(b"".join(audio_of(events)), law), 8_000)
        assert right(HEARD, heard) >= 0.7


async def silenced(talking: Service, question: bytes) -> float:
    """Seconds from the first frame of speech to the last audio of the answer that it interrupts."""
    async with realtime(talking, "?model=long") as session:
        await session.write("Go on.")
        await session.say("response.create")
        first = await session.until("response.output_audio.delta")
        began = time.monotonic()
        for _ in range(15):
            first += await session.until("response.output_audio.delta")
        done = asyncio.Event()
        spoken_at = time.monotonic()
        speaking = asyncio.create_task(microphone(session, question, done))
        last_audio = 0.0
        events: list[Event] = []
        while not events or events[-1]["type"] != "response.done":
            events.append(await session.read())
            if events[-1]["type"] == "response.output_audio.delta":
                last_audio = time.monotonic()
        over = time.monotonic()
        done.set()
        await speaking
        response = events[-1]["response"]
        assert response["status_details"] == {"type": "cancelled", "reason": "turn_detected"}
        heard = response["output"][0]["content"][0]["transcript"]
        # About 15 characters are spoken in a second.
        assert LONG.startswith(heard)
        assert len(heard) <= 30 * (over - began + 0.5)
        return last_audio - spoken_at


async def test_speaking_silences_the_answer_within_200_ms(talking: Service, question: bytes) -> None:
    # The middle one of three, since other programs may hold up the machine.
    assert sorted([await silenced(talking, question) for _ in range(3)])[1] <= 0.2


async def test_fifty_interruptions_leave_nothing_behind(talking: Service, question: bytes) -> None:
    """Each turn interrupts the answer to the one before."""
    process = psutil.Process(talking.workers()[0].pid)
    turn = question[:19_200] + silence(0.4)
    held: list[tuple[int, int]] = []
    async with realtime(talking, "?model=few") as session:
        ear = {"transcription": {"model": "heard"}, "turn_detection": {"silence_duration_ms": 200}}
        await session.update(audio={"input": ear, "output": {"voice": "hum"}})
        for number in range(50):
            await session.append(turn)
            events = await session.until("response.created")
            ends = [event["response"] for event in events if event["type"] == "response.done"]
            reasons = [response["status_details"]["reason"] for response in ends]
            assert reasons == (["turn_detected"] if number else [])
            await session.until("response.output_audio.delta")
            held.append((process.num_fds(), process.num_threads()))
            assert talking.metric("polywire_streams_open", wire="realtime") == 1
    await asyncio.to_thread(wait_for, lambda: talking.metric("polywire_streams_open", wire="realtime") == 0)
    assert held[-1][0] <= held[24][0] + 1
    assert held[-1][1] <= held[24][1] + 1


async def test_audio_comes_no_further_ahead_than_it_can_be_used(service: Service) -> None:
    """Two seconds of answer after the lead of three are sent as they are played."""
    text = "word " * 17
    async with realtime(service) as session:
        await session.write(text)
        began = time.monotonic()
        events = await session.respond()
        seconds = sum(len(piece) for piece in audio_of(events)) / 48_000
        assert seconds == pytest.approx(0.06 * len(text.strip()), abs=0.1)
        assert time.monotonic() - began >= seconds - 3.0 - 0.2
