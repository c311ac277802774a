"""What only the embedded store does: its file does not grow for ever, and does not take a stranger's for its own."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import GatewayError
from stores import sqlite_threads
from stores.sqlite import SqliteStore


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "polywire.db")
    yield store
    await store.aclose()


def rows(path: Path) -> dict[str, int]:
    connection = sqlite3.connect(path)
    counts = {
        table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608 - constants
        for table in ("documents", "logs", "entries", "signals")
    }
    connection.close()
    return counts


async def test_what_has_expired_leaves_the_file(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_threads, "PURGE_SECONDS", 0)
    await store.put("kind", "kept", b"", owner="", ttl=60)
    await store.put("kind", "gone", b"", owner="", ttl=-1)
    await store.append("kept", [b"x"])
    await store.append("gone", [b"x"] * 100, last=True, ttl=-1)
    await store.put("kind", "more", b"", owner="")
    assert rows(tmp_path / "polywire.db") == {"documents": 2, "logs": 1, "entries": 1, "signals": 0}


async def test_a_file_of_another_format_is_refused_and_left_alone(store: SqliteStore, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "polywire.db")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(GatewayError, match="format 99"):
        await store.get("kind", "key")


async def test_a_write_that_fails_is_undone_and_fails_alone(store: SqliteStore) -> None:
    wrong: Any = object()
    await store.append("log", [b"x"])
    results = await asyncio.gather(
        store.put("kind", "one", b"x", owner=""),
        store.put("kind", "wrong", wrong, owner=""),
        store.append("one", [b"x"]),
        store.append("log", [b"y", wrong]),
        store.append("two", [b"x"]),
        store.put("kind", "two", b"x", owner=""),
        return_exceptions=True,
    )
    assert [isinstance(result, Exception) for result in results] == [False, True, False, True, False, False]
    assert (await store.read("log")).last == 1
    assert await store.get("kind", "wrong") is None
    assert await store.get("kind", "two") is not None
