"""Whose speech is made first: the listener's who would first have nothing left to hear."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from adapters.local_speech import LocalSpeech
from adapters.local_thread import EngineThread
from gateway.events import AudioDelta
from gateway.request import SpeechRequest
from gateway.speech import speak
from tests.local_fixtures import ROW, SETTINGS
from tests.running import ROOT
from tests.voices import FINISHED, REQUEST, FakeChat, FakeVoice

STUCK_SECONDS = 60


@pytest.fixture
async def thread() -> AsyncIterator[EngineThread]:
    started = EngineThread("test")
    yield started
    await started.aclose()


async def held(thread: EngineThread, gate: threading.Event) -> asyncio.Task[bool]:
    """A step that holds the thread until `gate` is set; it is at work when this returns."""
    began = threading.Event()

    def hold() -> bool:
        began.set()
        return gate.wait(5)

    holding = asyncio.create_task(thread.run(hold))
    await asyncio.to_thread(began.wait, 5)
    return holding


async def test_the_most_urgent_step_that_waits_is_next(thread: EngineThread) -> None:
    gate, order = threading.Event(), list[str]()
    holding = await held(thread, gate)
    steps = [("last", 9.0), ("first", 1.0), ("second", 2.0), ("third", 2.0)]
    waiting = [asyncio.create_task(thread.run_by(due, order.append, name)) for name, due in steps]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(holding, *waiting)
    assert order == ["first", "second", "third", "last"]


async def test_a_step_that_nobody_waits_for_is_dropped_and_the_others_run(thread: EngineThread) -> None:
    gate, order = threading.Event(), list[str]()
    holding = await held(thread, gate)
    waiting = [asyncio.create_task(thread.run_by(due, order.append, str(due))) for due in (1.0, 2.0, 3.0)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(holding, *waiting[1:])
    assert order == ["2.0", "3.0"]


async def test_a_step_that_goes_on_holds_up_neither_the_close_nor_the_end_of_the_process() -> None:
    script = f"""
import asyncio, threading, time
from adapters.local_thread import EngineThread

async def main():
    began = threading.Event()
    thread = EngineThread("test")
    step = asyncio.create_task(thread.run(lambda: (began.set(), threading.Event().wait({STUCK_SECONDS}))))
    await asyncio.to_thread(began.wait)
    step.cancel()
    await thread.aclose()
    print("closed")

asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(STUCK_SECONDS / 2):
        output, complaint = await process.communicate()
    assert (process.returncode, output, complaint) == (0, b"closed\n", b"")


async def test_a_failed_step_fails_its_caller_only(thread: EngineThread) -> None:
    with pytest.raises(ZeroDivisionError):
        await thread.run(divmod, 1, 0)
    assert await thread.run(divmod, 7, 2) == (3, 1)


async def test_a_voice_is_told_when_its_listener_will_have_nothing_left() -> None:
    voice = FakeVoice(lambda text: bytes(48_000))
    chat = FakeChat("First sentence. Second sentence. Third sentence.", FINISHED)
    began = time.monotonic()
    async with aclosing(speak(chat.events(), voice, REQUEST)) as events:
        heard = [event async for event in events if isinstance(event, AudioDelta)]
    took = time.monotonic() - began
    assert sum(len(event.data) for event in heard) == 3 * 48_000
    first, second, third = (request.needed_at for request in voice.requests)
    assert began <= first <= began + took
    assert began + 1.0 <= second <= began + took + 1.0
    assert began + 2.0 <= third <= began + took + 2.0


async def test_a_listener_with_audio_in_hand_gives_way() -> None:
    """Five who have a minute in hand ask before one who has nothing, who waits at most for the step at work."""
    voice = LocalSpeech(ROW, SETTINGS)
    await voice.warm()
    order: list[str] = []

    async def hear(name: str, needed_at: float) -> None:
        request = SpeechRequest("speech", "One. Two. Three. Four.", needed_at=needed_at)
        async with aclosing(voice.synthesize(request)) as events:
            async for event in events:
                if isinstance(event, AudioDelta):
                    order.append(name)

    later = time.monotonic() + 60.0
    await asyncio.gather(*(hear("rich", later) for _ in range(5)), hear("poor", 0.0))
    await voice.aclose()
    last = max(place for place, name in enumerate(order) if name == "poor")
    assert order.count("rich") == 20
    assert last < 2 * 4
