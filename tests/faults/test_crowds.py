"""Crowds: streams that are given up, clients that say nothing, too much or too slowly; the service answers throughout.

Upstream, crowds and the one who asks for /readyz are processes of their own. The numbers are small here, and the bounds
leave room for the tests beside them; `make faults` has the numbers that are promised.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

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
FEW = 50
CHAT = {"stream": True, "messages": [{"role": "user", "content": "hi"}]}


Mark = Callable[[str], None]


@asynccontextmanager
async def answering(service: Service, what: str) -> AsyncIterator[Mark]:
    """/readyz answers 200 in time, on a new connection each time, as long as the block lasts, whose parts it marks."""
    parts: list[tuple[float, str]] = []

    def mark(part: str) -> None:
        parts.append((time.monotonic(), part))

    async with crowd(service, "ready", 1) as asking_all_the_while:
        mark("while they come")
        yield mark
        told = await asking_all_the_while.leave()
    ends = [*(began for began, _ in parts[1:]), math.inf]
    longest = {
        part: max((seconds for began, seconds in told["times"] if begin <= began < end), default=0.0)
        for (begin, part), end in zip(parts, ends, strict=True)
    }
    if WHOLE:
        said = ", ".join(f"{seconds * 1000:.0f} ms {part}" for part, seconds in longest.items())
        print(f"{what}: /readyz took at most {said}, of {len(told['times'])} times")  # noqa: T201
    assert list(told["answers"]) == ["HTTP/1.1 200 OK"]
    assert max(longest.values()) < READY_SECONDS


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


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        ("sockets", None),
        ("heads", None),
        ("streams", {"model": "paced-100", **CHAT}),
        ("streams", {"model": "deep", **CHAT}),
        ("requests", "JSON of 10,000 levels"),
    ],
    ids=["sockets", "heads", "streams that are left", "upstreams that fail", "bodies that are refused"],
)
async def test_what_ends_is_freed_at_once(crowded: Service, kind: str, asked: Any) -> None:
    """Nothing is left in cycles, which would keep what they hold until a collection walks all connections."""
    collected: list[int] = []
    before = await asyncio.to_thread(base, crowded)
    # The first ones open files and threads that are kept.
    before = before._replace(files=before.files + FEW // 2)
    for _ in range(2):
        async with crowd(crowded, kind, FEW, asked) as held:
            await held.leave()
        await settled(crowded, before)
        collected.append(int(await asyncio.to_thread(crowded.get, "/garbage")))
    # A voice that has begun leaves eighteen objects.
    assert collected[1] - collected[0] < 3 * FEW


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", list(MANY))
async def test_those_who_hold_a_connection_hold_nobody_up(crowded: Service, kind: str) -> None:
    """Idle sockets, heads and bodies that stop midway, pings as fast as they are taken."""
    before = await asyncio.to_thread(base, crowded)
    async with answering(crowded, f"{MANY[kind]} {kind}") as mark, crowd(crowded, kind, MANY[kind]) as held:
        mark("while they stay")
        await asyncio.sleep(STAY_SECONDS)
        mark("while they leave")
        told = await held.leave()
        await settled(crowded, before)
    # Whoever sends nothing but pings is let go.
    assert told["lost"] == (MANY[kind] if kind == "pings" else 0)


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
    assert statuses
    assert all(status < 500 for status in statuses), told
    after = await settled(crowded, before)
    if WHOLE:
        kept = (after.memory - before.memory) / 1024 / 1024
        print(f"{kind}: {told['answers']}, and {kept:.0f} MB kept")  # noqa: T201
    # Twice forty requests of 10 MB: what is kept of one is seen.
    assert after.memory - before.memory < 128 * 1024 * 1024
