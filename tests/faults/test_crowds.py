"""Crowds: streams that are given up, clients that say nothing, too much or too slowly; the service answers throughout.

Upstream, crowds and the one who asks for /readyz are processes of their own. The numbers are small here, and the bounds
leave room for the tests beside them; `make faults` has the numbers that are promised.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from tests.faults.peers import Upstream, crowd
from tests.running import Service

WHOLE = bool(os.environ.get("POLYWIRE_FAULTS"))
STREAMS = 1000 if WHOLE else 100
CLOSED_SECONDS = 1.0 if WHOLE else 3.0
READY_SECONDS = 0.2 if WHOLE else 1.0
STAY_SECONDS = 10 if WHOLE else 0.3
MANY = {"sockets": 10_000, "heads": 4000, "bodies": 1000, "pings": 20} if WHOLE else {
    "sockets": 200, "heads": 200, "bodies": 100, "pings": 5
}  # fmt: skip
CHAT = {"stream": True, "messages": [{"role": "user", "content": "hi"}]}


@asynccontextmanager
async def answering(service: Service, what: str) -> AsyncIterator[None]:
    """/readyz answers 200 in time, on a new connection each time, as long as the block lasts."""
    async with crowd(service, "ready", 1) as asking_all_the_while:
        yield
        told = await asking_all_the_while.leave()
    if WHOLE:
        print(f"{what}: /readyz took at most {told['longest'] * 1000:.0f} ms of {told['asked']} times")  # noqa: T201
    assert list(told["answers"]) == ["HTTP/1.1 200 OK"]
    assert told["longest"] < READY_SECONDS


class Base(NamedTuple):
    """What the worker holds."""

    files: int
    threads: int
    memory: int
    tasks: int
    streams: int


def base(service: Service) -> Base:
    worker = service.workers()[0]
    tasks, streams = int(service.get("/tasks")), int(service.metric("polywire_streams_open"))
    return Base(worker.num_fds(), worker.num_threads(), worker.memory_full_info().uss, tasks, streams)


async def settled(service: Service, before: Base) -> Base:
    """What is held once files, tasks and streams are back at their base. Raises TimeoutError when they do not go."""
    async with asyncio.timeout(10):
        while True:
            now = await asyncio.to_thread(base, service)
            if now.files <= before.files + 2 and now.tasks <= before.tasks + 2 and now.streams <= before.streams:
                return now
            await asyncio.sleep(0.1)


async def give_up(service: Service, upstream: Upstream, many: int) -> float:
    """Begin `many` streams, leave them all, and say after how long the upstream had seen the last one go."""
    before = upstream.report()["asked"]
    async with crowd(service, "streams", many, {"model": "paced-100", **CHAT}) as readers:
        begun = await asyncio.to_thread(upstream.report)
        assert (begun["asked"] - before, begun["open"]) == (many, many)
        left = (await readers.leave())["left_at"]
        async with asyncio.timeout(20):
            while (told := await asyncio.to_thread(upstream.report))["open"]:  # noqa: ASYNC110 - nor here
                await asyncio.sleep(0.05)
    return float(told["left_at"] - left)


@pytest.mark.timeout(300)
async def test_streams_that_are_given_up_leave_nothing_behind(crowded: Service, upstream: Upstream) -> None:
    """Case X1: every upstream is let go within a second, and the service is back where it began."""
    await give_up(crowded, upstream, STREAMS)
    before = await asyncio.to_thread(base, crowded)
    seconds = await give_up(crowded, upstream, STREAMS)
    after = await settled(crowded, before)
    if WHOLE:
        print(f"{STREAMS} streams given up: upstreams closed within {seconds:.2f} s; {before} -> {after}")  # noqa: T201
    assert seconds < CLOSED_SECONDS
    assert after.threads <= before.threads
    assert after.memory - before.memory < 8 * 1024 * 1024


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", list(MANY))
async def test_those_who_hold_a_connection_hold_nobody_up(crowded: Service, kind: str) -> None:
    """Idle sockets, heads and bodies that stop midway, pings as fast as they are taken."""
    before = await asyncio.to_thread(base, crowded)
    async with answering(crowded, f"{MANY[kind]} {kind}"), crowd(crowded, kind, MANY[kind]) as held:
        await asyncio.sleep(STAY_SECONDS)
        told = await held.leave()
    # Whoever sends nothing but pings is let go.
    assert told["lost"] == (MANY[kind] if kind == "pings" else 0)
    await settled(crowded, before)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "kind", ["JSON of 10,000 levels", "lines of 10 MB", "deflate bombs", "upstreams that say too much"]
)
async def test_those_who_say_too_much_hold_nobody_up(crowded: Service, kind: str) -> None:
    """On every path and socket that reads JSON; upstreams send a long line, deep JSON, 128 MB in gzip."""
    before = await asyncio.to_thread(base, crowded)
    async with answering(crowded, kind), crowd(crowded, "requests", 2, kind) as asked:
        await asyncio.sleep(STAY_SECONDS)
        told = await asked.leave()
    statuses = {int(line.split()[1]) for line in told["answers"]}
    if WHOLE:
        print(f"{kind}: {told['answers']}")  # noqa: T201
    assert statuses
    assert all(status < 500 for status in statuses), told
    after = await settled(crowded, before)
    # Twice forty requests of 10 MB: what is kept of one is seen.
    assert after.memory - before.memory < 128 * 1024 * 1024
