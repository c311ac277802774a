"""What only the shared store does: it is away at times, forgets when it is restarted, and has a password."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gateway.errors import Conflict, GatewayError, NotFound
from gateway.ports import Store
from stores import open_store, redis_hub
from tests.redis_server import RedisServer, redis_server
from tests.upstreams.certificates import self_signed

PASSWORD = "open-sesame"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path / "redis", persistent=True, password=PASSWORD) as started:
        yield started


@pytest.fixture
async def store(server: RedisServer) -> AsyncIterator[Store]:
    store = open_store(server.url)
    yield store
    await store.aclose()


async def entries(store: Store, log: str) -> list[bytes]:
    async with asyncio.timeout(30):
        return [value async for _, value in store.follow(log)]


async def test_a_paused_server_refuses_what_is_new_and_keeps_what_is_under_way(
    server: RedisServer, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    await store.append("log", [b"a"])
    following = asyncio.create_task(entries(store, "log"))
    await asyncio.sleep(0.1)  # the reader is subscribed by then, or reads later what it would have been told
    with server.paused():
        began = time.monotonic()
        appending = asyncio.create_task(store.append("log", [b"b"], after=1))
        with pytest.raises(GatewayError) as caught:
            await store.put("kind", "key", b"", owner="")
        assert time.monotonic() - began < 3
        assert (caught.value.status, caught.value.code, caught.value.retryable) == (503, "store_unavailable", True)
        assert not appending.done()
        await asyncio.sleep(2)
    assert await appending == 2
    assert await store.append("log", [b"c"], after=2, last=True) == 3
    assert await following == [b"a", b"b", b"c"]
    assert PASSWORD not in caplog.text + caught.value.message


async def test_a_command_that_nobody_waits_for_any_more_is_not_sent(server: RedisServer, store: Store) -> None:
    await store.put("kind", "key", b"first", owner="")
    with server.paused():
        held = asyncio.create_task(store.get("kind", "key"))
        await asyncio.sleep(0.05)
        with pytest.raises(GatewayError):
            await store.put("kind", "key", b"second", owner="")
        assert isinstance((await asyncio.gather(held, return_exceptions=True))[0], GatewayError)
    found = await store.get("kind", "key")
    assert found is not None
    assert found.value == b"first"


async def test_a_restart_with_persistence_is_not_noticed_by_writers_and_readers(
    server: RedisServer, store: Store
) -> None:
    following = asyncio.create_task(entries(store, "log"))

    async def write() -> None:
        for number in range(400):
            await store.append("log", [b"%d" % number], after=number, last=number == 399)
            await asyncio.sleep(0.005)

    writing = asyncio.create_task(write())
    for _ in range(3):
        await asyncio.sleep(0.4)
        await asyncio.to_thread(server.restart)
    await writing
    assert await following == [b"%d" % number for number in range(400)]
    async with store.signals("channel") as messages:
        await store.signal("channel", b"heard")
        async with asyncio.timeout(5):
            assert await anext(messages) == b"heard"


async def test_a_server_that_has_forgotten_all_never_makes_a_gap(tmp_path: Path) -> None:
    with redis_server(tmp_path / "redis") as server:
        store = open_store(server.url)
        await store.append("log", [b"a", b"b"])
        await store.append("other", [b"a", b"b"])
        following = [asyncio.create_task(entries(store, name)) for name in ("log", "other")]
        await asyncio.sleep(0.1)  # the readers have read what is there
        await asyncio.to_thread(server.restart)
        with pytest.raises(Conflict, match="lost"):
            await store.append("log", [b"c"], after=2)
        assert await store.append("other", [b"x", b"y", b"z"], last=True) == 3
        for each in following:
            with pytest.raises(NotFound):
                await each
        assert await entries(store, "other") == [b"x", b"y", b"z"]
        await store.aclose()


async def test_a_log_that_vanishes_while_all_is_quiet_ends_its_reader(
    server: RedisServer, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_hub, "LOOK_SECONDS", 0.1)
    await store.append("log", [b"a"])
    following = asyncio.create_task(entries(store, "log"))
    await asyncio.sleep(0.1)
    server.command("FLUSHALL")
    with pytest.raises(NotFound):
        await following


async def test_a_reader_of_a_server_that_stays_away_is_told(
    server: RedisServer, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_hub, "LOST_SECONDS", 0.2)
    await store.append("log", [b"a"])
    following = asyncio.create_task(entries(store, "log"))
    await asyncio.sleep(0.1)
    await asyncio.to_thread(server.kill)
    with pytest.raises(GatewayError) as caught:
        await following
    assert caught.value.code == "store_unavailable"


async def test_a_wrong_password_is_a_store_that_does_not_answer(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = open_store(server.url.replace(PASSWORD, "hush"))
    with pytest.raises(GatewayError) as caught:
        await wrong.get("kind", "key")
    assert caught.value.status == 503
    assert "AuthenticationError" in caplog.text
    assert "hush" not in caplog.text + caught.value.message + repr(wrong)
    await wrong.aclose()


async def test_a_server_with_tls_is_read_and_written_and_an_untrusted_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, chain = tmp_path / "certificate.pem", tmp_path / "chain.pem"
    self_signed(certificate, chain)
    with redis_server(tmp_path / "redis", password=PASSWORD, certificate=chain) as server:
        store = open_store(f"{server.url}?ssl_ca_certs={certificate}")
        following = asyncio.create_task(entries(store, "log"))
        for number, value in enumerate((b"a", b"b", b"c")):
            await store.append("log", [value], after=number, last=value == b"c")
        assert await following == [b"a", b"b", b"c"]
        async with store.signals("channel") as messages:
            await store.signal("channel", b"heard")
            async with asyncio.timeout(5):
                assert await anext(messages) == b"heard"
        await store.aclose()
        assert not caplog.records
        # No certificate authority of this machine has signed it.
        untrusting = open_store(server.url)
        with pytest.raises(GatewayError) as caught:
            await untrusting.get("kind", "key")
        assert caught.value.code == "store_unavailable"
        await untrusting.aclose()
        plain = open_store(server.url.replace("rediss:", "redis:"))
        with pytest.raises(GatewayError):
            await plain.get("kind", "key")
        await plain.aclose()


async def test_scripts_that_the_server_was_told_to_forget_are_loaded_again(server: RedisServer, store: Store) -> None:
    await store.append("log", [b"a"])
    server.command("SCRIPT", "FLUSH")
    assert await store.append("log", [b"b"], after=1) == 2


async def test_a_server_without_memory_refuses_and_keeps_what_it_has(server: RedisServer, store: Store) -> None:
    await store.put("kind", "key", b"first", owner="")
    server.command("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(GatewayError, match="OutOfMemory") as caught:
        await store.put("kind", "key", b"second", owner="")
    assert caught.value.status == 503
    found = await store.get("kind", "key")
    assert found is not None
    assert found.value == b"first"


async def test_what_has_expired_leaves_the_indexes_too(server: RedisServer, store: Store) -> None:
    for number in range(30):
        await store.put("kind", str(number), b"", owner="me", ttl=0.05)
    await asyncio.sleep(0.1)
    for name in ("one", "two"):
        await store.put("kind", name, b"", owner="me")
    assert "32" not in server.command("ZCARD", "polywire:index:kind")
    assert server.command("ZCARD", "polywire:index:kind") == server.command("ZCARD", "polywire:owned:kind:me")
    assert server.command("ZCARD", "polywire:index:kind") == ":2\r\n"
    assert server.command("EXISTS", "polywire:expiries:kind") == ":0\r\n"


async def test_signals_stay_in_their_database(server: RedisServer, store: Store) -> None:
    other = open_store(server.url.replace("/0", "/1"))
    async with store.signals("channel") as here, other.signals("channel") as there:
        await other.signal("channel", b"there")
        await store.signal("channel", b"here")
        async with asyncio.timeout(5):
            assert await anext(here) == b"here"
            assert await anext(there) == b"there"
    await other.aclose()
