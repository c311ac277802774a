"""Leaving: the upstream's socket closes at once, nothing is left behind, and open streams cost no thread."""

from __future__ import annotations

import asyncio
import os
import resource
import threading
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, aclosing
from typing import Any

import pytest

from gateway.config import ProviderType
from tests.aws.account import BODIES, KINDS, OPENINGS, answer, at, events, read_all
from tests.upstreams.byte_server import ByteServer, serving

PROMPTLY = 0.1
TRIES = 3
each = pytest.mark.parametrize("kind", KINDS)


async def leave(server: ByteServer, generator: Any, count: int, *, events_first: int) -> float:
    """Cancel a reader after so many events; the seconds until its upstream saw the close."""
    got = asyncio.Event()

    async def reader() -> None:
        async with aclosing(generator) as source:
            for _ in range(events_first):
                await anext(source)
            got.set()
            async for _ in source:
                pass

    task = asyncio.create_task(reader())
    await server.until(lambda: len(server.requests) == count)
    async with asyncio.timeout(5):
        await got.wait()
        since = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.requests[-1].gone.wait()
    return time.monotonic() - since


@each
@pytest.mark.parametrize("when", ["before the head", "before the first event", "while silent", "midway"])
async def test_leaving_closes_the_upstream_socket_at_once(kind: ProviderType, when: str) -> None:
    never = asyncio.Event()
    first = OPENINGS[kind]
    script = {
        "before the head": answer(kind, after=never),
        "before the first event": answer(kind, never),
        "while silent": answer(kind, first, never),
        "midway": answer(kind, *[first] * 2000, never),
    }[when]
    seconds = []
    async with serving(script) as server, at(server, kind) as adapter:
        for count in range(1, TRIES + 1):
            told = 0 if when.startswith("before") else 1
            seconds.append(await leave(server, events(adapter), count, events_first=told))
    # The machine may stall once; a close that waits for something is slow every time.
    assert min(seconds) < PROMPTLY


@each
async def test_aborts_and_ends_leave_no_socket_task_or_thread(kind: ProviderType) -> None:
    body = BODIES[kind]
    async with serving(answer(kind, *body)) as server, at(server, kind) as adapter:
        await read_all(events(adapter))
        tasks, threads, descriptors = len(asyncio.all_tasks()), threading.active_count(), open_descriptors()
        for _ in range(50):
            async with aclosing(events(adapter)) as source:
                await anext(source)
            _, error = await read_all(events(adapter))
            assert error is None
        await server.until(lambda: len(server.connections) == 1)
        assert len(asyncio.all_tasks()) <= tasks
        assert threading.active_count() == threads
        assert open_descriptors() <= descriptors
        await adapter.aclose()
        await server.until(lambda: not server.connections)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@each
async def test_a_stream_read_to_its_end_gives_its_connection_to_the_next(kind: ProviderType) -> None:
    async with serving(answer(kind, *BODIES[kind])) as server, at(server, kind) as adapter:
        for _ in range(3):
            await read_all(events(adapter))
    assert server.accepted == 1


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_descriptors")
async def test_five_hundred_open_streams_need_no_threads() -> None:
    last = asyncio.Event()
    *most, end = BODIES["bedrock"]
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(answer("bedrock", *most, last, end)))
        bedrock = await stack.enter_async_context(at(server, "bedrock"))
        await read_one(bedrock)
        before = threading.active_count()
        sources = [await stack.enter_async_context(aclosing(events(bedrock))) for _ in range(500)]
        await asyncio.gather(*map(anext, sources))
        assert len(server.connections) >= 500
        assert threading.active_count() == before
        last.set()
        ends = await asyncio.gather(*map(read_all, sources))
    assert all(error is None for _, error in ends)


async def read_one(adapter: Any) -> None:
    async with aclosing(events(adapter)) as source:
        await anext(source)


async def test_more_streams_than_connections_wait_their_turn() -> None:
    """The 3rd of two connections starts when one is free."""
    async with (
        serving(answer("bedrock", *BODIES["bedrock"])) as server,
        at(server, "bedrock", connections=2) as adapter,
    ):
        ends = await asyncio.gather(*(read_all(events(adapter)) for _ in range(6)))
    assert all(error is None for _, error in ends)
    assert server.accepted <= 2
