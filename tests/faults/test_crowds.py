"""Crowds: streams that are given up, sockets that say nothing, floods; the service answers throughout.

The numbers are small here; `make faults` runs a thousand streams and as many sockets as the system gives.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.contract.openai_entry import routes, row
from tests.contract.scenario import Scenario
from tests.running import Service, running
from tests.upstreams.byte_server import ByteServer

WHOLE = bool(os.environ.get("POLYWIRE_FAULTS"))
STREAMS = 1000 if WHOLE else 100
SOCKETS = 9000 if WHOLE else 300
READY_SECONDS = 0.2 if WHOLE else 1.0
"""The short form shares its machine with other tests."""


@asynccontextmanager
async def in_front_of(server: ByteServer, folder: Path) -> AsyncIterator[Service]:
    """The service with the fake as the provider of `m`."""
    provider = {**row(server.url).model_dump(mode="json", exclude_none=True, exclude_defaults=True)}
    provider |= {"api_key_env": "CROWD_KEY", "connections": 2000}
    models = [{"id": "m", "provider": provider["name"], "upstream": "m"}]
    config = {"providers": [provider], "models": models, "limits": {"streams": 2000}}
    starting = running(folder, config, environment={"CROWD_KEY": "sk-canary-crowd"})
    service = await asyncio.to_thread(starting.__enter__)
    try:
        yield service
    finally:
        await asyncio.to_thread(starting.__exit__, None, None, None)


@asynccontextmanager
async def watched(service: Service) -> AsyncIterator[list[float]]:
    """Asks for /readyz all the while; the seconds that each answer took."""
    taken: list[float] = []

    async def ask() -> None:
        async with aiohttp.ClientSession() as session:
            while True:
                began = time.perf_counter()
                async with session.get(f"{service.url}/readyz") as answer:
                    assert answer.status == 200
                taken.append(time.perf_counter() - began)
                await asyncio.sleep(0.05)

    task = asyncio.create_task(ask())
    try:
        yield taken
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert taken


async def begin(service: Service) -> asyncio.StreamWriter:
    """A stream that has begun."""
    body = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: "
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    writer.write(f"{head}{len(body)}\r\n\r\n".encode() + body)
    await reader.readuntil(b"Hel")
    return writer


def base(service: Service) -> tuple[int, int, int]:
    """Files, threads and memory of the worker."""
    worker = service.workers()[0]
    return worker.num_fds(), worker.num_threads(), worker.memory_info().rss


async def give_up(server: ByteServer, service: Service, many: int) -> float:
    """Begin `many` streams, leave them all, and say how long it took until the upstream had seen the last go."""
    before = len(server.requests)
    writers = []
    for start in range(0, many, 50):
        writers += await asyncio.gather(*(begin(service) for _ in range(min(50, many - start))))
    left = time.perf_counter()
    for writer in writers:
        writer.transport.abort()
    asked = server.requests[before:]
    assert len(asked) == many
    await asyncio.wait_for(asyncio.gather(*(request.ended.wait() for request in asked)), 20)
    return time.perf_counter() - left


@pytest.mark.timeout(300)
async def test_streams_that_are_given_up_leave_nothing_behind(tmp_path: Path) -> None:
    """Case X1: every upstream is let go within a second, and the service is back where it began."""
    async with ByteServer({}) as server:
        server.routes.update(routes(Scenario(pause=0.05, pieces=("Hel", *["lo "] * 600)), server.url))
        async with in_front_of(server, tmp_path) as service:
            await give_up(server, service, STREAMS)
            before = base(service)
            seconds = await give_up(server, service, STREAMS)
            await _eventually(lambda: base(service)[0] <= before[0] + 2)
            after = base(service)
            if WHOLE:
                print(f"{STREAMS} streams given up: upstreams closed in {seconds:.2f} s; {before} -> {after}")  # noqa: T201
            assert seconds < (1.0 if WHOLE else 3.0)
            assert after[1] <= before[1]
            assert after[2] - before[2] < 16 * 1024 * 1024


@pytest.mark.timeout(300)
async def test_idle_sockets_and_half_sent_heads_hold_nobody_up(tmp_path: Path) -> None:
    async with ByteServer({}) as server:
        server.routes.update(routes(Scenario(), server.url))
        async with in_front_of(server, tmp_path) as service:
            writers = []
            async with watched(service) as taken:
                for number in range(SOCKETS):
                    _, writer = await asyncio.open_connection("127.0.0.1", service.port)
                    if number % 2:
                        writer.write(b"POST /generate HTTP/1.1\r\nhost: x\r\nx-a: ")
                    writers.append(writer)
                await asyncio.sleep(1)
            if WHOLE:
                print(f"{SOCKETS} idle connections: /readyz took at most {max(taken):.3f} s")  # noqa: T201
            assert max(taken) < READY_SECONDS
            for writer in writers:
                writer.transport.abort()


async def _eventually(holds: Any) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.05)
