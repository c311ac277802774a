"""`make soak`: a steady load of streams of several kinds; memory, descriptors and first-token times must stay flat.

Exits 1 when they do not. The first third of the time is warm-up; the second and the last are compared.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.table import columns
from tests.conftest import scripted_config
from tests.running import Service, running

CLIENTS = 12
PAUSE = 0.1
FORGET_SECONDS = 5
"""Predictions are forgotten so soon that the store has to forget as much as it takes."""


@dataclass
class Readings:
    """What was seen of one third of the time."""

    megabytes: list[float] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    first: list[float] = field(default_factory=list)

    def figures(self) -> tuple[float, float, float]:
        """Megabytes, descriptors, and the 99th percentile of milliseconds to the first piece."""
        late = statistics.quantiles(self.first, n=100)[98] * 1000
        return statistics.median(self.megabytes), statistics.median(self.descriptors), late


def main(seconds: float) -> int:
    """Run, print, judge."""
    limits = {"prediction_ttl_seconds": FORGET_SECONDS}
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), scripted_config(limits=limits)) as service:
        thirds = asyncio.run(_soak(service, seconds))
    rows = [third.figures() for third in thirds]
    streams = [f"{len(third.first) / (seconds / 3):.0f}" for third in thirds]
    cells = [
        (name, rate, *(f"{value:.0f}" for value in row))
        for name, rate, row in zip(("warm-up", "second third", "last third"), streams, rows, strict=True)
    ]
    head = ("", "streams/s", "memory MB", "descriptors", "first piece p99 ms")
    print(columns(f"Soak of {seconds:.0f} s", head, cells))
    grown = _grown(rows[1], rows[2])
    print("flat" if not grown else f"NOT flat: {', '.join(grown)}")
    return bool(grown)


def _grown(before: Sequence[float], after: Sequence[float]) -> list[str]:
    """What has grown by more than a busy machine explains."""
    bounds = (before[0] * 1.03 + 4, before[1] + 5, before[2] * 2 + 50)
    names = ("memory", "descriptors", "time to the first piece")
    return [name for name, bound, value in zip(names, bounds, after, strict=True) if value > bound]


async def _soak(service: Service, seconds: float) -> list[Readings]:
    began = time.monotonic()
    thirds = [Readings(), Readings(), Readings()]

    def now() -> Readings:
        return thirds[min(2, int((time.monotonic() - began) / seconds * 3))]

    async def client(number: int) -> None:
        kinds = (_generate, _chat, _prediction, _socket)
        while time.monotonic() - began < seconds:
            asked = time.monotonic()
            async with kinds[number % len(kinds)](session, service) as pieces:
                first = None
                async for _ in pieces:
                    first = first or time.monotonic() - asked
                assert first is not None
                now().first.append(first)
            number += 1
            await asyncio.sleep(PAUSE)

    async def watch() -> None:
        processes = service.processes()
        while True:
            now().megabytes.append(sum(process.memory_info().rss for process in processes) / 1e6)
            now().descriptors.append(sum(process.num_fds() for process in processes))
            await asyncio.sleep(0.5)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        watching = asyncio.create_task(watch())
        await asyncio.gather(*(client(number) for number in range(CLIENTS)))
        watching.cancel()
        await asyncio.wait([watching])
    return thirds


@asynccontextmanager
async def _generate(session: aiohttp.ClientSession, service: Service) -> AsyncIterator[AsyncIterator[Any]]:
    async with session.post(f"{service.url}/generate", json={"prompt": "hi"}) as answer:
        yield answer.content.iter_any()


@asynccontextmanager
async def _chat(session: aiohttp.ClientSession, service: Service) -> AsyncIterator[AsyncIterator[Any]]:
    body = {"model": "default", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    async with session.post(f"{service.url}/v1/chat/completions", json=body) as answer:
        yield answer.content.iter_any()


@asynccontextmanager
async def _prediction(session: aiohttp.ClientSession, service: Service) -> AsyncIterator[AsyncIterator[Any]]:
    url = f"{service.url}/v1/models/polywire/chat/predictions"
    async with session.post(url, json={"input": {"prompt": "hi"}}) as answer:
        made = await answer.json()
    async with session.get(made["urls"]["stream"]) as answer:
        yield answer.content.iter_any()


@asynccontextmanager
async def _socket(session: aiohttp.ClientSession, service: Service) -> AsyncIterator[AsyncIterator[Any]]:
    async def turn() -> AsyncIterator[Any]:
        await socket.send_json({"type": "chat", "text": "hi", "speak": True, "format": "pcm"})
        async for message in socket:
            yield message
            if message.type is aiohttp.WSMsgType.TEXT and json.loads(message.data)["type"] in ("finished", "error"):
                return

    async with session.ws_connect(f"{service.ws_url}/ws") as socket:
        yield turn()


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
