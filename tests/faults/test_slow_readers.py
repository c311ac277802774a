"""Readers of one byte per second on every wire cost little memory, and nobody else waits for them."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.faults.peers import crowd
from tests.faults.slow_asks import asking, grpc_call, slow_asks
from tests.running import Service

WHOLE = bool(os.environ.get("POLYWIRE_FAULTS"))
READERS = 10 if WHOLE else 4
MOST_BYTES = 2**20
OTHERS = {"model": "paced-20", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
OTHERS_COUNT = 20
SECONDS = 5 if WHOLE else 1
SLOWER = 2 if WHOLE else 5
"""How many times as late others' tokens may be; the short form shares its cores with other tests."""
MODEL = "flood-32000000"


async def ask_for(service: Service, wire: str) -> list[dict[str, Any]]:
    """How the readers of a wire ask; for Replicate's, whose run belongs to the service, everything is made first."""
    if wire == "grpc":
        return [asking(grpc_call(MODEL)) | {"port": service.grpc_port}] * READERS
    if wire != "replicate":
        return [dict(slow_asks(MODEL)[wire])] * READERS
    async with httpx.AsyncClient(base_url=service.url, timeout=60) as client:
        made = [await _finished(client) for _ in range(READERS)]
    return [asking(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()) for path in made]


async def _finished(client: httpx.AsyncClient) -> str:
    """The stream's path of a prediction that has ended."""
    body = {"input": {"prompt": "hi"}, "stream": True}
    made = (await client.post("/v1/models/test/flood-8000000/predictions", json=body)).json()
    async with asyncio.timeout(60):
        while (await client.get(f"/v1/predictions/{made['id']}")).json()["status"] != "succeeded":  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    return str(urlsplit(made["urls"]["stream"]).path)


WIRES = (*slow_asks(MODEL), "replicate", "grpc")


async def others(service: Service) -> float:
    """The 99th percentile of the time between two tokens of the others, in seconds."""
    async with crowd(service, "streams", OTHERS_COUNT, OTHERS) as reading:
        await asyncio.sleep(SECONDS)
        told = await reading.leave()
    assert told["tokens"] > OTHERS_COUNT * SECONDS * 10
    return float(told["p99"])


def memory(service: Service) -> int:
    return int(service.workers()[0].memory_full_info().uss)


async def at_rest(service: Service) -> int:
    """The memory once nothing is taken from the upstream any more: it grows no further for half a second."""
    async with asyncio.timeout(60):
        before = await asyncio.to_thread(memory, service)
        while True:
            await asyncio.sleep(0.5)
            now = await asyncio.to_thread(memory, service)
            if abs(now - before) < 2**18:
                return now
            before = now


@pytest.mark.timeout(600)
async def test_slow_readers_take_a_mebibyte_each_at_most_and_nobody_elses_time(crowded: Service) -> None:
    async with AsyncExitStack() as stack:
        alone = await others(crowded)
        taken: dict[str, float] = {}
        for wire in WIRES:
            # The first of a wire have everything loaded that it needs; what the second take is the readers' own.
            for _ in range(2):
                asked = await ask_for(crowded, wire)
                before = await at_rest(crowded)
                await stack.enter_async_context(crowd(crowded, "slow", 1, asked))
            taken[wire] = (await at_rest(crowded) - before) / READERS
        beside = await others(crowded)
    if WHOLE:
        told = {wire: f"{each / 2**20:.2f}" for wire, each in taken.items()}
        print(f"slow readers, MiB each: {json.dumps(told)}")  # noqa: T201
        print(f"others' p99 between tokens: {alone * 1000:.1f} -> {beside * 1000:.1f} ms")  # noqa: T201
    assert all(each < MOST_BYTES for each in taken.values()), taken
    assert beside < SLOWER * alone
