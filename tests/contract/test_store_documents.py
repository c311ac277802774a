"""What every store promises of documents, and of its file."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from gateway.config_errors import ConfigError
from gateway.errors import GatewayError
from gateway.ports import Store
from stores import open_store
from tests.contract.conftest import OpenStore
from tests.contract.store_process import process

FAST = {"capacity": 1, "per_seconds": 0.2}


async def test_a_document_is_found_by_every_worker(store: Store, another: OpenStore) -> None:
    written = await store.put("model", "a", b"1", owner="me")
    found = await (await another()).get("model", "a")
    assert found == written
    assert (written.key, written.value, written.owner, written.version) == ("a", b"1", "me", 1)
    assert await store.get("connector", "a") is None


async def test_put_replaces_and_raises_the_version(store: Store) -> None:
    first = await store.put("model", "a", b"1", owner="me")
    second = await store.put("model", "a", b"2", owner="me")
    assert second.version == first.version + 1
    assert second.created_at == first.created_at


async def test_add_creates_once(store: Store, another: OpenStore) -> None:
    stores = [store, await another()]
    added = await asyncio.gather(*(stores[n % 2].add("secret", "a", b"%d" % n, owner="") for n in range(10)))
    assert sum(document is not None for document in added) == 1


async def test_of_many_replacers_of_one_version_one_wins(store: Store, another: OpenStore) -> None:
    stores = [store, await another()]
    document = await store.put("prediction", "a", b"0", owner="")
    changed = await asyncio.gather(
        *(stores[n % 2].replace("prediction", "a", b"%d" % n, version=document.version) for n in range(10))
    )
    assert sum(winner is not None for winner in changed) == 1
    assert await store.replace("prediction", "nobody", b"", version=1) is None


async def test_delete_says_whether_there_was_one(store: Store) -> None:
    await store.put("model", "a", b"1", owner="")
    assert await store.delete("model", "a") is True
    assert await store.delete("model", "a") is False
    assert await store.get("model", "a") is None


async def test_list_is_newest_first_by_owner_and_by_page(store: Store) -> None:
    for number in range(5):
        await store.put("prediction", str(number), b"", owner="even" if number % 2 == 0 else "odd")
    await store.replace("prediction", "0", b"changed", version=1)

    async def keys(owner: str | None, limit: int = 10, before: str | None = None) -> str:
        return "".join(d.key for d in await store.list("prediction", owner=owner, limit=limit, before=before))

    assert await keys(None) == "43210"
    assert await keys("even") == "420"
    assert await keys("even", 2) == "42"
    assert await keys("even", 2, "2") == "0"
    assert await keys(None, before="nobody") == ""


async def test_expired_documents_are_gone(store: Store) -> None:
    await store.put("lease", "a", b"1", owner="", ttl=-1)
    await store.put("lease", "b", b"1", owner="", ttl=60)
    assert await store.get("lease", "a") is None
    assert await store.replace("lease", "a", b"2", version=1) is None
    assert await store.delete("lease", "a") is False
    assert [document.key for document in await store.list("lease", owner=None, limit=9)] == ["b"]
    again = await store.add("lease", "a", b"3", owner="", ttl=60)
    assert again is not None
    assert again.version == 1


async def test_replace_keeps_the_expiry_unless_it_is_given(store: Store) -> None:
    document = await store.put("lease", "a", b"1", owner="", ttl=60)
    kept = await store.replace("lease", "a", b"2", version=document.version)
    assert kept is not None
    assert await store.replace("lease", "a", b"3", version=kept.version, ttl=-1) is not None
    assert await store.get("lease", "a") is None


async def test_two_processes_change_one_document_without_losing_a_change(store: Store, url: str) -> None:
    await store.put("count", "a", b"0", owner="")
    async with process(url, "count", "a") as one, process(url, "count", "a") as two:
        assert (await one.wait(), await two.wait()) == (0, 0)
    document = await store.get("count", "a")
    assert document is not None
    assert document.value == b"100"


async def test_a_store_that_cannot_be_opened_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = open_store(f"sqlite:///{tmp_path}/file/polywire.db")
    with pytest.raises(GatewayError, match="POLYWIRE_STORE") as caught:
        await store.get("a", "b")
    assert caught.value.status == 503
    await store.aclose()


@pytest.mark.parametrize(
    "url", ["redis://", "redis://x/a", "redis://u:hush@x?y=z", "sqlite:///:memory:", "sqlite:///", "hush"]
)
def test_a_url_that_means_no_store_is_refused_at_start_and_not_quoted(url: str) -> None:
    with pytest.raises(ConfigError, match="store: ") as caught:
        open_store(url)
    assert "hush" not in str(caught.value)


async def test_a_bucket_gives_what_it_holds_and_fills_itself(store: Store, another: OpenStore) -> None:
    stores = [store, await another()]
    waits = await asyncio.gather(
        *(stores[n % 2].take("key", 1, capacity=10, per_seconds=600) for n in range(14)), store.take("b", 1, **FAST)
    )
    assert sum(wait == 0 for wait in waits[:14]) == 10
    assert all(55 < wait <= 60 for wait in waits[:14] if wait)
    assert waits[14] == 0
    wait = await store.take("b", 1, **FAST)
    assert 0 < wait <= 0.2
    async with asyncio.timeout(5):
        while await store.take("b", 1, **FAST):  # noqa: ASYNC110 - time is what fills it
            await asyncio.sleep(0.02)


async def test_keys_may_hold_any_text(store: Store) -> None:
    for key in ("a:b", "", "\n", "한글", "x" * 1000):
        await store.put("kind", key, b"\x00\xff\r\n", owner="me:too")
        found = await store.get("kind", key)
        assert found is not None
        assert (found.key, found.value, found.owner) == (key, b"\x00\xff\r\n", "me:too")
    assert len(await store.list("kind", owner="me:too", limit=9)) == 5


async def test_the_file_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/polywire.db")
    await store.put("a", "b", b"", owner="")
    modes = {entry.name: entry.stat().st_mode & 0o777 for entry in os.scandir(tmp_path)}
    assert modes["polywire.db"] == modes["polywire.db-wal"] == 0o600
    await store.aclose()
