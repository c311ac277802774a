"""A bounded wait ends in time, and leaves the task as it was."""

from __future__ import annotations

import asyncio

import pytest

from gateway.patience import Waited, WaitLimit

BRIEF = 0.01


async def test_a_wait_that_is_cancelled_from_outside_is_cancelled() -> None:
    limit = WaitLimit()
    task = asyncio.create_task(limit.within(60, asyncio.Event().wait()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    limit.stop()


async def test_a_wait_leaves_no_cancellation_behind() -> None:
    limit = WaitLimit()
    task = asyncio.current_task()
    assert task is not None

    async def deaf() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "late"
        return "never"

    assert await limit.within(BRIEF, deaf()) == "late"
    assert task.cancelling() == 0
    with pytest.raises(Waited):
        await limit.within(BRIEF, asyncio.Event().wait())
    assert task.cancelling() == 0
    assert await limit.within(60, asyncio.sleep(0, "in time")) == "in time"
    limit.stop()


async def test_a_wait_that_goes_on_after_its_cancellation_is_cancelled_again() -> None:
    limit = WaitLimit()

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.Event().wait()

    async with asyncio.timeout(2):
        with pytest.raises(Waited):
            await limit.within(BRIEF, stubborn())
    limit.stop()


async def test_a_fault_in_time_is_the_fault() -> None:
    limit = WaitLimit()

    async def faulty() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        await limit.within(60, faulty())
    limit.stop()
