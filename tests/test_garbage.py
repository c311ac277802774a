"""Old garbage is collected once there is more of it than the open connections explain, and not before."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from wires import garbage
from wires.garbage import BLOCKS_PER_CONNECTION, UNEXPLAINED_BLOCKS, GarbageKeeper

CYCLES = UNEXPLAINED_BLOCKS
"""Each is two blocks at least."""


class Cycle:
    """Freed by a collection only."""

    def __init__(self) -> None:
        self.itself = [self]


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(garbage, "LOOK_SECONDS", 0.01)
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def leave_garbage() -> weakref.ref[Cycle]:
    """Cycles that have become old before they became garbage."""
    cycles = [Cycle() for _ in range(CYCLES)]
    gc.collect()
    return weakref.ref(cycles[0])


async def test_old_garbage_is_collected() -> None:
    with GarbageKeeper(lambda: 0):
        left = leave_garbage()
        async with asyncio.timeout(10):
            while left() is not None:  # noqa: ASYNC110 - a collection sets no event
                await asyncio.sleep(0.01)


async def test_what_connections_may_hold_is_not_walked() -> None:
    connections, looked = CYCLES * 10 // BLOCKS_PER_CONNECTION, asyncio.Semaphore(0)

    def count() -> int:
        looked.release()
        return connections

    with GarbageKeeper(count):
        left = leave_garbage()
        for _ in range(3):
            await looked.acquire()
        assert left() is not None
        connections = 0
        for _ in range(3):
            await looked.acquire()
        assert left() is None


async def test_what_is_kept_is_not_walked_again() -> None:
    looked = asyncio.Semaphore(0)

    def count() -> int:
        looked.release()
        return 0

    def collections() -> int:
        return int(gc.get_stats()[2]["collections"])

    with GarbageKeeper(count):
        kept = [Cycle() for _ in range(CYCLES)]
        before = collections()
        for _ in range(5):
            await looked.acquire()
        assert collections() == before + 1
        assert len(kept) == CYCLES
