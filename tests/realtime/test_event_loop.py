"""No step of the event loop is long, whatever a session hears, says and writes down."""

from __future__ import annotations

import asyncio
import base64
import time
from asyncio.events import Handle
from collections.abc import AsyncIterator
from typing import Any

import pytest

from adapters import build
from adapters.scripted import ScriptedChat, Step
from gateway.catalog import Gateway
from gateway.config import Kind, ModelRow, ProviderRow, Settings
from gateway.events import Finished, FinishReason, TextDelta
from gateway.ports import Provider
from tests.realtime.conftest import HEARD, silence
from tests.realtime.line import Line, serve

LONGEST_STEP = 0.05
SESSIONS = 4


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    local, script = ProviderRow(name="local", type="local"), ProviderRow(name="script", type="scripted")
    models = [
        ModelRow(id="default", provider="script", upstream="answer"),
        ModelRow(id="voice", provider="local", upstream="speech", kind="speech"),
        ModelRow(id="transcriber", provider="local", upstream="transcription", kind="transcription"),
    ]
    settings = Settings(providers=(local, script), models=tuple(models))
    steps: list[Step] = [*[TextDelta(f"{word} ") for word in HEARD.split()], Finished(FinishReason.STOP)]

    def built(row: ProviderRow, kind: Kind, settings: Settings) -> Provider:
        return ScriptedChat(row, settings, {"answer": steps}) if kind == "chat" else build(row, kind, settings)

    started = Gateway(settings, built)
    await started.warm()
    yield started
    await started.aclose()


async def talk(gateway: Gateway, question: bytes) -> list[dict[str, Any]]:
    """One session in which a spoken question is answered aloud."""
    line = Line()
    serving = await serve(line, gateway)
    audio = question + silence(1.0)
    for start in range(0, len(audio), 4_800):
        line.say(type="input_audio_buffer.append", audio=base64.b64encode(audio[start : start + 4_800]).decode())
    line.say(type="input_audio_buffer.append", audio=base64.b64encode(silence(60.0)).decode())
    await asyncio.wait_for(line.done.wait(), 60)
    line.incoming.put_nowait({"type": "websocket.disconnect"})
    await serving
    return line.events


async def test_no_step_of_the_loop_is_long(gateway: Gateway, question: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[float, str]] = []
    run = Handle._run

    def timed(handle: Handle) -> None:
        # The thread's own time, so that other programs on the machine do not count.
        began = time.thread_time()
        run(handle)
        steps.append((time.thread_time() - began, repr(handle)))

    monkeypatch.setattr(Handle, "_run", timed)
    sessions = await asyncio.gather(*(talk(gateway, question) for _ in range(SESSIONS)))
    for events in sessions:
        assert events[-1]["response"]["output"][0]["content"][0]["transcript"].strip() == HEARD
    assert len(steps) > 1_000
    longest = max(steps)
    assert longest[0] < LONGEST_STEP, longest
