"""Time to the first token and to the first audio of the service as `make serve` brings it up."""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
from websockets.asyncio.client import connect

from benchmarks.table import Row
from tests.running import Service, running

ROUNDS = 7
QUESTION = "Tell me about the sea in three sentences."
SPEECH = "The sea is wide and blue. Ships sail on it every day, and fish live in it."


def measure() -> list[Row]:
    """One row per figure, medians of ROUNDS."""
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), {}, environment={"TMPDIR": folder}) as service:
        _first_piece(service)
        pieces = [_first_piece(service) for _ in range(ROUNDS)]
        spoken = [asyncio.run(_turn(service, type="chat", text=QUESTION, speak=True)) for _ in range(ROUNDS)]
        speech = [asyncio.run(_turn(service, type="speak", text=SPEECH)) for _ in range(ROUNDS)]
    return [
        _row("/generate: first token", pieces),
        _row("/ws spoken chat: first token", [timings["ttft_ms"] for timings in spoken]),
        _row("/ws spoken chat: first audio", [timings["ttfa_ms"] for timings in spoken]),
        _row("/ws spoken chat: whole turn", [timings["total_ms"] for timings in spoken]),
        _row("/ws speak: first audio", [timings["ttfa_ms"] for timings in speech]),
    ]


def _first_piece(service: Service) -> float:
    began = time.perf_counter()
    with httpx.stream("POST", f"{service.url}/generate", json={"prompt": QUESTION}, timeout=60) as answer:
        for _ in answer.iter_raw():
            return (time.perf_counter() - began) * 1000
    raise RuntimeError("the service answered nothing")


async def _turn(service: Service, **message: Any) -> dict[str, float]:
    async with connect(f"{service.ws_url}/ws", compression=None) as socket:
        await socket.send(json.dumps(message))
        async for received in socket:
            if isinstance(received, str) and (said := json.loads(received))["type"] in ("finished", "error"):
                timings: dict[str, float] = said["timings"]
                return timings
    raise RuntimeError("the socket closed before the turn's end")


def _row(name: str, milliseconds: list[float]) -> Row:
    return Row(name, statistics.median(milliseconds), min(milliseconds), max(milliseconds))
