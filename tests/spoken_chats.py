"""Spoken chats as their listeners meet them: scripted chat models, the embedded voice, a player at each socket."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from websockets.asyncio.client import connect

from tests.running import Service, running

CLAUSE = "The sea is wide and very blue,"
ANSWER = (
    f"{CLAUSE} and it never sleeps. Ships sail on it every day, and thousands of fish live in it. In the morning the "
    "fishermen row out with their nets, and the gulls follow them. At noon the wind turns, so the boats come home. "
    "Children wait for them on the long wooden pier. In the evening the lamps are lit, one after the other."
)
WORD_SECONDS = 0.03
STEADY_SECONDS = 0.02
STEADY_WORDS = 20_000
BYTES_PER_SECOND = 48_000


@dataclass
class Listened:
    """One spoken chat, in seconds. `audio` is what was received, `stalled` how long its player had nothing to play."""

    first_audio: float = 0.0
    first_audio_after_clause: float = 0.0
    audio: float = 0.0
    wall: float = 0.0
    underruns: int = 0
    stalled: float = 0.0

    @property
    def real_time_factor(self) -> float:
        """Seconds of audio for each second that the listener waited."""
        return self.audio / self.wall


@contextmanager
def spoken_service(folder: Path) -> Iterator[Service]:
    """`sea` writes ANSWER word by word, `steady` a word every STEADY_SECONDS; the voice is the embedded one."""
    words = [word if number == 0 else f" {word}" for number, word in enumerate(ANSWER.split(" "))]
    sea = [step for word in words for step in ({"text": word}, {"delay": WORD_SECONDS})]
    steady = [{"text": "word "}, {"delay": STEADY_SECONDS}] * STEADY_WORDS
    script = folder / "script.yaml"
    script.write_text(json.dumps({"sea": [*sea, {"finish": "stop"}], "steady": [*steady, {"finish": "stop"}]}))
    config: dict[str, Any] = {
        "providers": [{"name": "script", "type": "scripted", "path": str(script)}, {"name": "local", "type": "local"}],
        "models": [
            {"id": "default", "provider": "script", "upstream": "sea"},
            {"id": "steady", "provider": "script", "upstream": "steady"},
            {"id": "voice", "provider": "local", "upstream": "speech", "kind": "speech"},
        ],
    }
    with running(folder, config) as service:
        yield service


async def listen(service: Service) -> Listened:
    """Ask for a spoken answer and play it as it comes."""
    heard, text, clause_at, first_at = Listened(), "", 0.0, 0.0
    async with connect(f"{service.ws_url}/ws", compression=None) as socket:
        asked = time.perf_counter()
        await socket.send(json.dumps({"type": "chat", "text": "Tell me.", "speak": True, "format": "pcm"}))
        async for received in socket:
            now = time.perf_counter()
            if isinstance(received, bytes):
                first_at = first_at or now
                late = now - (first_at + heard.audio + heard.stalled)
                if late > 0:
                    heard.underruns += heard.audio > 0
                    heard.stalled += late
                heard.audio += len(received) / BYTES_PER_SECOND
                heard.wall = now - asked
                continue
            message = json.loads(received)
            text += message.get("text", "")
            clause_at = clause_at or (now if CLAUSE in text else 0.0)
            if message["type"] in ("finished", "error"):
                assert message["type"] == "finished", message
                break
    heard.first_audio, heard.first_audio_after_clause = first_at - asked, first_at - clause_at
    return heard


async def lateness(service: Service, until: asyncio.Event) -> list[float]:
    """Seconds that each word of a steady text came later after the one before than it was written."""
    late: list[float] = []
    async with connect(f"{service.ws_url}/ws", compression=None) as socket:
        await socket.send(json.dumps({"type": "chat", "text": "Go.", "model": "steady"}))
        before = 0.0
        while not until.is_set():
            received = json.loads(await socket.recv())
            now = time.perf_counter()
            if received["type"] == "text":
                if before:
                    late.append(now - before - STEADY_SECONDS)
                before = now
    return late


async def crowd(service: Service, sessions: int) -> tuple[list[Listened], list[float]]:
    """So many spoken chats that begin at once, and the lateness of a text that is written meanwhile."""
    over = asyncio.Event()
    watching = asyncio.create_task(lateness(service, over))
    heard = await asyncio.gather(*(listen(service) for _ in range(sessions)))
    over.set()
    return heard, await watching
