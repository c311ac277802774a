"""`make soak`: a steady load of streams of several kinds; memory, descriptors and first-token times must stay flat.

Exits 1 when they do not. The first third of the time is warm-up; through the windows of the rest a line is laid, the
median of the slopes between all pairs of windows, so that no single busy window decides.
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
from itertools import combinations
from pathlib import Path
from typing import Any

import aiohttp
import grpc
from opensearch.protobufs.services.ml_service_pb2_grpc import MLServiceStub

from benchmarks.table import columns
from tests.conftest import scripted_config
from tests.opensearch.calls import asked
from tests.running import Service, running

CLIENTS = 12
PAUSE = 0.1
"""Seconds that each client waits after a stream."""
WINDOWS = 12
WARM_UP = 4
"""So many of the windows are not judged."""
FORGET_SECONDS = 5
"""Predictions and responses are forgotten so soon that the store has to forget as much as it takes."""
BEAT_SECONDS = 0.02


@dataclass
class Window:
    """What was seen of one window. `late` is how late timers of the load's own process were: that is the machine."""

    megabytes: list[float] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)

    def figures(self) -> Figures:
        """One number for each."""
        first = [seconds * 1000 for seconds in self.first]
        return Figures(
            statistics.median(self.megabytes),
            statistics.median(self.descriptors),
            statistics.median(first),
            _percentile(first),
            _percentile([seconds * 1000 for seconds in self.late]),
        )


@dataclass(frozen=True)
class Figures:
    """Of one window; the last three in milliseconds."""

    megabytes: float
    descriptors: float
    first_median: float
    first_p99: float
    late_p99: float


def main(seconds: float, pause: float = PAUSE) -> int:
    """Run, print, judge."""
    limits = {"prediction_ttl_seconds": FORGET_SECONDS}
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder), scripted_config(limits=limits), grpc=True) as service,
    ):
        windows = asyncio.run(_soak(service, seconds, pause))
    seen = [window.figures() for window in windows]
    cells = [
        (
            f"{number + 1}{' (warm-up)' if number < WARM_UP else ''}",
            f"{len(window.first) / (seconds / WINDOWS):.0f}",
            *(f"{value:.1f}" for value in vars(each).values()),
        )
        for number, (window, each) in enumerate(zip(windows, seen, strict=True))
    ]
    head = (
        "window",
        "streams/s",
        "memory MB",
        "descriptors",
        "first piece median ms",
        "p99 ms",
        "own timer late p99 ms",
    )
    print(columns(f"Soak of {seconds:.0f} s, {sum(len(window.first) for window in windows):,} streams", head, cells))
    judged = seen[WARM_UP:]
    for name, growth, bound in growths(judged):
        print(f"{name}: {growth:+.1f} from the first judged window to the last, at most {bound:.1f}")
    found = grown(judged)
    print("flat" if not found else f"NOT flat: {', '.join(found)}")
    return bool(found)


def growths(seen: Sequence[Figures]) -> list[tuple[str, float, float]]:
    """What each figure has grown by along its line, and what a flat one may."""

    def row(name: str, values: list[float], share: float, more: float) -> tuple[str, float, float]:
        return name, _growth(values), statistics.median(values) * share + more

    return [
        row("memory, MB", [each.megabytes for each in seen], 0.02, 3),
        row("descriptors", [each.descriptors for each in seen], 0, 4),
        row("time to the first piece, median ms", [each.first_median for each in seen], 0.5, 5),
        # What delays a timer of another process as well is the machine's doing.
        row("time to the first piece, p99 ms", [each.first_p99 - each.late_p99 for each in seen], 0.5, 30),
    ]


def grown(seen: Sequence[Figures]) -> list[str]:
    """The figures that have grown by more than a flat one may."""
    return [name for name, growth, bound in growths(seen) if growth > bound]


def _growth(values: Sequence[float]) -> float:
    """How much the line through `values` rises from the first to the last (Theil and Sen's median of slopes)."""
    slopes = [(values[b] - values[a]) / (b - a) for a, b in combinations(range(len(values)), 2)]
    return statistics.median(slopes) * (len(values) - 1)


def _percentile(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


async def _soak(service: Service, seconds: float, pause: float) -> list[Window]:
    began = time.monotonic()
    windows = [Window() for _ in range(WINDOWS)]

    def now() -> Window:
        return windows[min(WINDOWS - 1, int((time.monotonic() - began) / seconds * WINDOWS))]

    async def client(number: int) -> None:
        kinds = (_generate, _chat, _prediction, _socket, _response, _call)
        await asyncio.sleep(pause * number / CLIENTS)
        while time.monotonic() - began < seconds:
            asked_at = time.monotonic()
            async with kinds[number % len(kinds)](session, service) as pieces:
                first = None
                async for _ in pieces:
                    first = first or time.monotonic() - asked_at
                assert first is not None
                now().first.append(first)
            number += 1
            await asyncio.sleep(pause)

    async def watch() -> None:
        processes = service.processes()
        while True:
            now().megabytes.append(sum(process.memory_info().rss for process in processes) / 1e6)
            now().descriptors.append(sum(process.num_fds() for process in processes))
            await asyncio.sleep(0.5)

    async def beat() -> None:
        while True:
            due = time.monotonic() + BEAT_SECONDS
            await asyncio.sleep(BEAT_SECONDS)
            now().late.append(time.monotonic() - due)

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, raise_for_status=True) as session:
        watching = [asyncio.create_task(watch()), asyncio.create_task(beat())]
        await asyncio.gather(*(client(number) for number in range(CLIENTS)))
        for task in watching:
            task.cancel()
        await asyncio.wait(watching)
    return windows


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


@asynccontextmanager
async def _response(session: aiohttp.ClientSession, service: Service) -> AsyncIterator[AsyncIterator[Any]]:
    async with session.post(f"{service.url}/v1/responses", json={"input": "hi", "stream": True}) as answer:
        yield answer.content.iter_any()


@asynccontextmanager
async def _call(session: aiohttp.ClientSession, service: Service) -> AsyncIterator[AsyncIterator[Any]]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{service.grpc_port}") as channel:
        yield aiter(MLServiceStub(channel).PredictModelStream(asked("hello", inputs="hi")))


if __name__ == "__main__":
    sys.exit(main(*map(float, sys.argv[1:])))
