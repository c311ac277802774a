"""The streams of one key over all workers: exact under concurrency, and given back however a stream ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from gateway import leases
from gateway.config import Limits, Settings
from gateway.errors import RateLimited
from gateway.room import Room
from tests.contract.conftest import OpenStore

OpenRoom = Callable[[], Awaitable[Room]]
EACH = 5


@pytest.fixture
async def rooms(another: OpenStore) -> AsyncIterator[OpenRoom]:
    """Opens another worker's room in the same store."""
    settings = Settings(limits=Limits(streams_per_key=EACH), workers=4)
    async with AsyncExitStack() as stack:

        async def open_room() -> Room:
            room = Room(settings, await another())
            stack.push_async_callback(room.aclose)
            return room

        yield open_room


async def hold(room: Room, owner: str, begun: asyncio.Event, until: asyncio.Event) -> None:
    async with room.take(owner):
        begun.set()
        await until.wait()


async def begin(room: Room, owner: str, until: asyncio.Event) -> asyncio.Task[None] | None:
    """A stream that has begun, None when it was refused."""
    begun = asyncio.Event()
    stream = asyncio.create_task(hold(room, owner, begun, until))
    waiting = asyncio.create_task(begun.wait())
    await asyncio.wait((stream, waiting), return_when=asyncio.FIRST_COMPLETED)
    if begun.is_set():
        return stream
    waiting.cancel()
    with pytest.raises(RateLimited, match="5 streams") as refused:
        await stream
    assert refused.value.retry_after == 1
    return None


async def free(room: Room, owner: str, count: int) -> None:
    """Wait until `count` streams can begin at the same time, and no more."""
    async with asyncio.timeout(5):
        while True:
            until = asyncio.Event()
            begun = await asyncio.gather(*(begin(room, owner, until) for _ in range(EACH + 2)))
            held = [stream for stream in begun if stream is not None]
            until.set()
            await asyncio.gather(*held)
            assert len(held) <= count
            if len(held) == count:
                return
            # What these had is put back behind their ends.
            await asyncio.sleep(0.1)


async def test_all_workers_together_give_exactly_what_a_key_may_have(rooms: OpenRoom) -> None:
    workers = [await rooms() for _ in range(3)]
    until = asyncio.Event()
    asked = await asyncio.gather(*(begin(workers[turn % 3], "a", until) for turn in range(40)))
    held = [stream for stream in asked if stream is not None]
    assert len(held) == EACH
    for room in workers:
        with pytest.raises(RateLimited):
            await room.demand("a")
        await room.demand("b")
    until.set()
    await asyncio.gather(*held)
    await free(workers[0], "a", EACH)


async def test_a_stream_that_is_cancelled_at_any_moment_gives_back_what_it_took(rooms: OpenRoom) -> None:
    room, never = await rooms(), asyncio.Event()
    for pauses in range(30):
        stream = asyncio.create_task(hold(room, "a", asyncio.Event(), never))
        for _ in range(pauses):
            await asyncio.sleep(0)
        stream.cancel()
        await asyncio.gather(stream, return_exceptions=True)
    await free(await rooms(), "a", EACH)


async def test_what_a_dead_worker_had_comes_back(rooms: OpenRoom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASE_SECONDS", 0.3)
    monkeypatch.setattr(leases, "SWEEP_SECONDS", 0.1)
    monkeypatch.setattr(leases, "BEAT_SECONDS", 60)
    dying, living, never = await rooms(), await rooms(), asyncio.Event()
    held = [await begin(dying, "a", never) for _ in range(EACH)]
    assert await begin(living, "a", never) is None
    await free(living, "a", EACH)
    for stream in held:
        assert stream is not None
        stream.cancel()
    await asyncio.gather(*(stream for stream in held if stream is not None), return_exceptions=True)
    await free(living, "a", EACH)
