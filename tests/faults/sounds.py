"""The same between Polywire and what speaks or listens: voices asked on three wires, a transcriber on one.

`local` and `scripted` speak and listen in Polywire's own process and have no network to break.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from gateway.config import ProviderRow
from gateway.events import AudioFormat
from gateway.wav import wav_header
from tests.contract.entry import CANARY, CANARY_ENV
from tests.contract.speech_entry import SPEECH_ENTRIES, audio
from tests.faults.cells import IDLE_SECONDS, WHOLE, Cell
from tests.faults.proxy import MARK, Fault, proxy
from tests.faults.upstream import AWS
from tests.running import Service, running
from tests.sockets import socket
from tests.upstreams.byte_server import Answer, ByteServer

PCM = MARK + bytes(253)
HEARD = "Hello there."
TRANSCRIPT = [
    {"type": "transcript.text.delta", "delta": "Hel"},
    {"type": "transcript.text.delta", "delta": "lo there."},
    {"type": "transcript.text.done", "text": HEARD},
]
TRANSCRIBER = "openai transcription"
RECORDING = wav_header(AudioFormat(rate=16_000)) + bytes(3200)


@dataclass(frozen=True, slots=True)
class Sounding:
    """A provider, and the fake answer that it gets."""

    name: str
    row: Callable[[str], ProviderRow]
    answer: Answer
    model: str
    kind: str = "speech"


VOICES = tuple(
    Sounding(f"{entry.name} speech", entry.row, audio((PCM, PCM)), entry.model)
    for entry in SPEECH_ENTRIES
    if entry.over_http
)
LISTENER = Sounding(
    TRANSCRIBER,
    SPEECH_ENTRIES[2].row,
    Answer([f"data: {json.dumps(event)}\n\n".encode() for event in TRANSCRIPT]),
    "gpt-4o-mini-transcribe",
    "transcription",
)
Saw = Callable[[Service, aiohttp.ClientSession, str], Awaitable[str]]


async def _bytes(service: Service, http: aiohttp.ClientSession, model: str) -> str:
    body = {"model": model, "input": HEARD, "voice": "alloy", "response_format": "pcm"}
    async with http.post("/v1/audio/speech", json=body) as answer:
        if answer.status >= 400:
            return f"refused {answer.status}"
        try:
            return WHOLE if await answer.read() else "no sound"
        except aiohttp.ClientPayloadError:
            return "error: a broken body"


async def _events(service: Service, http: aiohttp.ClientSession, model: str) -> str:
    body = {"model": model, "input": HEARD, "voice": "alloy", "response_format": "pcm", "stream_format": "sse"}
    async with http.post("/v1/audio/speech", json=body) as answer:
        return await _read(answer, "speech.audio.done")


async def _read(answer: aiohttp.ClientResponse, end: str) -> str:
    if answer.status >= 400:
        return f"refused {answer.status}"
    lines = (await answer.text()).split("\n")
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    if any("error" in event or event.get("type") == "error" for event in events):
        return "error: in the stream"
    return WHOLE if events and events[-1]["type"] == end else "no end"


async def _turn(service: Service, http: aiohttp.ClientSession, model: str) -> str:
    async with socket(service) as client:
        heard = await client.ask(type="speak", text=HEARD, voice=model)
    return WHOLE if heard.last["type"] == "finished" and heard.audio else f"error: {heard.last['message']}"


async def _transcript(service: Service, http: aiohttp.ClientSession, model: str) -> str:
    form = aiohttp.FormData({"model": model, "stream": "true"})
    form.add_field("file", RECORDING, filename="a.wav")
    async with http.post("/v1/audio/transcriptions", data=form) as answer:
        return await _read(answer, "transcript.text.done")


SPEAKING: dict[str, Saw] = {"openai speech": _bytes, "openai speech as events": _events, "websocket": _turn}
ASKED: list[tuple[str, Saw, Sounding]] = [
    *((wire, ask, voice) for wire, ask in SPEAKING.items() for voice in VOICES),
    ("openai transcription", _transcript, LISTENER),
]


@asynccontextmanager
async def sounding_service(faults: Sequence[Fault]) -> AsyncIterator[Service]:
    """The service with every voice and the transcriber behind a proxy for each of `faults`."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        rows: list[dict[str, Any]] = []
        models: list[dict[str, Any]] = []
        for each in (*VOICES, LISTENER):
            server = await stack.enter_async_context(ByteServer({"*": each.answer}))
            for fault in faults:
                between = await stack.enter_async_context(proxy(server.url, fault))
                row = each.row(between.url).model_dump(mode="json", exclude_none=True, exclude_defaults=True)
                name = _id(each, fault)
                rows.append({**row, "name": name, "retries": 0})
                models.append({"id": name, "provider": name, "upstream": each.model, "kind": each.kind})
        limits = {"idle_seconds": IDLE_SECONDS, "first_event_seconds": IDLE_SECONDS}
        config = {"providers": rows, "models": models, "limits": limits}
        starting = running(folder, config, environment={CANARY_ENV: CANARY, **AWS})
        service = await asyncio.to_thread(starting.__enter__)
        try:
            yield service
        finally:
            await asyncio.to_thread(starting.__exit__, None, None, None)


def _id(each: Sounding, fault: Fault) -> str:
    return f"{each.name}-{fault.name}".lower().replace("_", "-").replace(" ", "-")


async def fill(service: Service, fault: Fault) -> list[Cell]:
    """Ask every wire for every voice behind `fault`, and for the transcriber."""
    async with aiohttp.ClientSession(service.url) as http:

        async def one(wire: str, ask: Saw, each: Sounding) -> Cell:
            began = time.perf_counter()
            saw = await ask(service, http, _id(each, fault))
            return Cell(fault, wire, each.name, saw, "", time.perf_counter() - began)

        return list(await asyncio.gather(*(one(*each) for each in ASKED)))
