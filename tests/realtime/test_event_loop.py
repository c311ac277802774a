"""No step of the event loop is long, whatever a session hears, says and writes down."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from asyncio.events import Handle
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.types import Message
from starlette.websockets import WebSocket

from adapters import build
from adapters.scripted import ScriptedChat, Step
from gateway.catalog import Gateway
from gateway.config import Kind, ModelRow, ProviderRow, Settings
from gateway.events import Finished, FinishReason, TextDelta
from gateway.ports import Provider
from tests.realtime.conftest import HEARD, silence
from wires.openai.realtime.configuration import SessionConfig
from wires.openai.realtime.pump import Pump
from wires.openai.realtime.session import Opening, Session

LONGEST_STEP = 0.05
SESSIONS = 4


class Line:
    """The server's side of a socket, without a network."""

    def __init__(self) -> None:
        self.incoming: asyncio.Queue[Message] = asyncio.Queue()
        self.events: list[dict[str, Any]] = []
        self.done = asyncio.Event()
        self.socket = WebSocket({"type": "websocket"}, self.incoming.get, self.send)

    def say(self, **event: Any) -> None:
        self.incoming.put_nowait({"type": "websocket.receive", "text": json.dumps(event)})

    async def send(self, message: Message) -> None:
        if message["type"] != "websocket.send":
            return
        self.events.append(json.loads(message["text"]))
        if self.events[-1]["type"] == "response.done":
            self.done.set()


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
    line, loop = Line(), asyncio.get_running_loop()
    opening = Opening("default", loop.time, 0, 3600.0, SessionConfig())
    line.incoming.put_nowait({"type": "websocket.connect"})
    await line.socket.accept()
    serving = asyncio.create_task(Pump(line.socket, gateway, Session(gateway, opening)).run())
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
