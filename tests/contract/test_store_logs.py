"""What every store promises of logs and signals: nothing lost, nothing doubled, no reader left waiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from gateway.errors import Conflict, NotFound
from gateway.ports import Store
from tests.contract.conftest import OpenStore
from tests.contract.store_process import process


async def entries(store: Store, log: str, after: int = 0) -> list[tuple[int, bytes]]:
    async with asyncio.timeout(10):
        return [entry async for entry in store.follow(log, after)]


async def drain(following: AsyncIterator[tuple[int, bytes]]) -> None:
    async for _ in following:
        pass


async def test_a_log_replays_from_any_point_and_ends(store: Store) -> None:
    assert await store.append("log", [b"a", b"b"]) == 2
    assert await store.append("log", [b"c"], last=True) == 3
    assert await entries(store, "log") == [(1, b"a"), (2, b"b"), (3, b"c")]
    assert await entries(store, "log", after=2) == [(3, b"c")]
    assert await entries(store, "log", after=3) == []


async def test_a_closed_log_takes_nothing_more(store: Store) -> None:
    await store.append("log", [b"a"], last=True)
    with pytest.raises(Conflict):
        await store.append("log", [b"b"])
    assert await entries(store, "log") == [(1, b"a")]


async def test_a_log_is_continued_only_where_its_writer_left_it(store: Store, another: OpenStore) -> None:
    assert await store.append("log", [b"a", b"b"], after=0) == 2
    assert await store.append("log", [b"c"], after=2) == 3
    for wrong in (0, 2, 9):
        with pytest.raises(Conflict) as caught:
            await store.append("log", [b"d"], after=wrong)
        assert caught.value.code == "log_moved"
    other = await another()
    racing = [each.append("log", [b"d"], after=3, last=True) for each in (store, other, store, other)]
    results = await asyncio.gather(*racing, return_exceptions=True)
    assert sum(result == 4 for result in results) == 1
    with pytest.raises(Conflict) as caught:
        await store.append("log", [b"e"], after=4)
    assert caught.value.code == "log_closed"
    assert [value for _, value in await entries(store, "log")] == [b"a", b"b", b"c", b"d"]


async def test_entries_may_hold_any_bytes(store: Store, another: OpenStore) -> None:
    values = [b"", b"\n", b"\x00" * 300, bytes(range(256)), b"x" * 200_000]
    following = asyncio.create_task(entries(await another(), "log"))
    await store.append("log", values[:2])
    await store.append("log", values[2:], last=True)
    assert [value for _, value in await following] == values
    assert [value for _, value in await entries(store, "log")] == values


async def test_of_many_closers_one_wins(store: Store, another: OpenStore) -> None:
    stores = [store, await another()]
    closed = await asyncio.gather(
        *(stores[n % 2].append("log", [b"%d" % n], last=True) for n in range(8)), return_exceptions=True
    )
    assert sum(result == 1 for result in closed) == 1
    assert sum(isinstance(result, Conflict) for result in closed) == 7


async def test_a_page_is_what_is_there_now(store: Store) -> None:
    assert (await store.read("log")).entries == ()
    await store.append("log", [b"a", b"b", b"c"])
    page = await store.read("log", after=1, limit=1)
    assert (list(page.entries), page.last, page.ended) == ([(2, b"b")], 3, False)
    await store.append("log", [b"d"], last=True)
    assert (await store.read("log", after=1, limit=2)).ended is False
    assert (await store.read("log", after=1)).ended is True


async def test_readers_of_one_log_get_every_entry_while_it_grows(store: Store, another: OpenStore) -> None:
    other = await another()
    readers = [asyncio.create_task(entries(reader, "log")) for reader in (store, store, other, other)]
    for number in range(300):
        await store.append("log", [b"%d" % number], last=number == 299)
    for reader in readers:
        assert await reader == [(number + 1, b"%d" % number) for number in range(300)]


async def test_an_expired_log_is_gone_and_may_begin_anew(store: Store) -> None:
    await store.append("log", [b"a"], last=True, ttl=-1)
    assert (await store.read("log")).last == 0
    assert await store.append("log", [b"b"], last=True, ttl=60) == 1
    assert await entries(store, "log") == [(1, b"b")]


async def test_a_reader_of_a_log_that_expires_is_told(store: Store) -> None:
    await store.append("log", [b"x"] * 1000, ttl=60)
    async with aclosing(store.follow("log")) as following:
        await anext(following)
        await store.append("log", [b"y"], ttl=-1)
        with pytest.raises(NotFound):
            await drain(following)


async def test_news_reaches_readers_at_once_in_this_worker_and_soon_in_another(
    store: Store, another: OpenStore
) -> None:
    async def delays(reader: Store, log: str) -> list[float]:
        found = []
        async with aclosing(reader.follow(log)) as following:
            await store.append(log, [b"%f" % time.monotonic()])
            async for _, value in following:
                found.append(time.monotonic() - float(value))
                if len(found) == 20:
                    break
                await store.append(log, [b"%f" % time.monotonic()])
        return sorted(found)

    here = await delays(store, "here")
    there = await delays(await another(), "there")
    assert here[10] < 0.02
    assert there[10] < 0.05


async def test_signals_reach_every_subscriber_of_the_channel_only(store: Store, another: OpenStore) -> None:
    other = await another()
    async with store.signals("mine") as here, other.signals("mine") as there, other.signals("else") as elsewhere:
        await store.signal("mine", b"1")
        await other.signal("mine", b"2")
        await store.signal("else", b"3")
        async with asyncio.timeout(5):
            assert sorted([await anext(here), await anext(here)]) == [b"1", b"2"]
            assert sorted([await anext(there), await anext(there)]) == [b"1", b"2"]
            assert await anext(elsewhere) == b"3"
    await store.signal("mine", b"nobody listens")


async def test_readers_that_come_and_go_miss_nothing(store: Store, another: OpenStore) -> None:
    writer = await another()

    async def write() -> None:
        for number in range(1, 301):
            await writer.append("log", [b"%d" % number], last=number == 300)

    writing, got = asyncio.create_task(write()), [0]
    async with asyncio.timeout(20):
        while got[-1] < 300:
            async with aclosing(store.follow("log", got[-1])) as following:
                got.append((await anext(following))[0])
    assert got == list(range(301))
    await writing


async def test_a_signal_to_an_idle_worker_takes_less_than_a_tenth_of_a_second(store: Store, another: OpenStore) -> None:
    async with (await another()).signals("cancel") as messages:
        waits = []
        for _ in range(5):
            await asyncio.sleep(0.3)  # the watcher slows down while nothing happens
            began = time.monotonic()
            await store.signal("cancel", b"")
            async with asyncio.timeout(5):
                await anext(messages)
            waits.append(time.monotonic() - began)
    assert sorted(waits)[2] < 0.1


async def test_a_log_written_by_another_process_is_followed(store: Store, url: str) -> None:
    following = asyncio.create_task(entries(store, "log"))
    async with process(url, "append", "log"):
        assert await following == [(number + 1, b"%d" % number) for number in range(50)]


async def test_a_signal_of_another_process_arrives(store: Store, url: str) -> None:
    async with store.signals("channel") as messages, process(url, "signal", "channel"), asyncio.timeout(10):
        assert await anext(messages) == b"hello"


async def test_what_was_stored_survives_the_death_of_its_process(store: Store, url: str) -> None:
    async with process(url, "wait", "log") as child:
        assert child.stdout is not None
        assert await child.stdout.readline() == b"ready\n"
        child.kill()
        await child.wait()
    assert (await store.read("log")).entries == [(1, b"begun")]
    assert await store.append("log", [b"on"]) == 2


async def test_a_caller_that_leaves_does_not_stop_the_others(store: Store) -> None:
    leaving = [asyncio.create_task(store.append("log", [b"x"])) for _ in range(20)]
    staying = asyncio.create_task(store.append("other", [b"y"], last=True))
    await asyncio.sleep(0)
    for task in leaving:
        task.cancel()
    assert await staying == 1
    assert await entries(store, "other") == [(1, b"y")]


async def test_ten_thousand_entries_at_once_are_taken_in_bounded_pieces(store: Store) -> None:
    async with asyncio.timeout(20):
        await asyncio.gather(*(store.append(f"log{n % 100}", [b"x" * 20]) for n in range(10_000)))
    assert (await store.read("log7")).last == 100
