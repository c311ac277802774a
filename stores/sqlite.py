"""The embedded store: one SQLite file that all workers of one machine share.

One thread writes, one reads and one watches for what other workers write. A worker's death loses at most the batch
that was not committed, and nothing of what a caller was told is stored.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sqlite3
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from gateway.ports import Document, LogPage
from stores.following import FOLLOW_ENTRIES, follow_log
from stores.sqlite_appends import Appender
from stores.sqlite_threads import SqliteThread, prepare, store_unavailable
from stores.sqlite_watch import Watcher

DOCUMENT = "key, value, owner, version, created_at"
ALIVE = "(expires_at IS NULL OR expires_at > ?)"
READ = f"""
SELECT last, closed, (SELECT json_group_array(json_array(position, hex(value))) FROM (
    SELECT position, value FROM entries WHERE log = ? AND position > ? ORDER BY position LIMIT ?))
FROM logs WHERE name = ? AND {ALIVE}"""  # noqa: S608 - constants
"""One row, since each costs a turn of Python's lock."""
SIGNAL_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class _Threads:
    writer: SqliteThread
    reader: SqliteThread
    watcher: Watcher
    appender: Appender


class SqliteStore:
    """A `Store` in the file `path`, opened by its first use."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._id = secrets.randbits(62)
        self._opened: asyncio.Task[_Threads] | None = None
        self._threads: _Threads | None = None

    async def put(self, kind: str, key: str, value: bytes, *, owner: str, ttl: float | None = None) -> Document:
        def job(connection: sqlite3.Connection) -> Document:
            now = time.time()
            _forget_expired(connection, kind, key, now)
            row = connection.execute(
                "INSERT INTO documents (kind, key, value, owner, version, created_at, expires_at)"  # noqa: S608 - constants
                " VALUES (?, ?, ?, ?, 1, ?, ?) ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value,"
                " owner = excluded.owner, version = version + 1, expires_at = excluded.expires_at"
                f" RETURNING {DOCUMENT}",
                (kind, key, value, owner, now, _expiry(now, ttl)),
            ).fetchone()
            return Document(*row)

        return await (await self._open()).writer.run(job)

    async def add(self, kind: str, key: str, value: bytes, *, owner: str, ttl: float | None = None) -> Document | None:
        def job(connection: sqlite3.Connection) -> Document | None:
            now = time.time()
            _forget_expired(connection, kind, key, now)
            row = connection.execute(
                "INSERT INTO documents (kind, key, value, owner, version, created_at, expires_at)"  # noqa: S608 - constants
                f" VALUES (?, ?, ?, ?, 1, ?, ?) ON CONFLICT (kind, key) DO NOTHING RETURNING {DOCUMENT}",
                (kind, key, value, owner, now, _expiry(now, ttl)),
            ).fetchone()
            return Document(*row) if row else None

        return await (await self._open()).writer.run(job)

    async def get(self, kind: str, key: str) -> Document | None:
        def job(connection: sqlite3.Connection) -> Document | None:
            row = connection.execute(
                f"SELECT {DOCUMENT} FROM documents WHERE kind = ? AND key = ? AND {ALIVE}",  # noqa: S608 - constants
                (kind, key, time.time()),
            ).fetchone()
            return Document(*row) if row else None

        return await (await self._open()).reader.run(job)

    async def replace(
        self, kind: str, key: str, value: bytes, *, version: int, ttl: float | None = None
    ) -> Document | None:
        def job(connection: sqlite3.Connection) -> Document | None:
            now = time.time()
            row = connection.execute(
                "UPDATE documents SET value = ?, version = version + 1, expires_at = coalesce(?, expires_at)"  # noqa: S608 - constants
                f" WHERE kind = ? AND key = ? AND version = ? AND {ALIVE} RETURNING {DOCUMENT}",
                (value, _expiry(now, ttl), kind, key, version, now),
            ).fetchone()
            return Document(*row) if row else None

        return await (await self._open()).writer.run(job)

    async def delete(self, kind: str, key: str) -> bool:
        def job(connection: sqlite3.Connection) -> bool:
            _forget_expired(connection, kind, key, time.time())
            deleted = connection.execute("DELETE FROM documents WHERE kind = ? AND key = ?", (kind, key))
            return deleted.rowcount > 0

        return await (await self._open()).writer.run(job)

    async def list(self, kind: str, *, owner: str | None, limit: int, before: str | None = None) -> Sequence[Document]:
        conditions, values = ["kind = ?", ALIVE], [kind, time.time()]
        if owner is not None:
            conditions.append("owner = ?")
            values.append(owner)
        if before is not None:
            conditions.append("seq < (SELECT seq FROM documents WHERE kind = ? AND key = ?)")
            values += [kind, before]
        where = " AND ".join(conditions)
        query = f"SELECT {DOCUMENT} FROM documents WHERE {where} ORDER BY seq DESC LIMIT ?"  # noqa: S608 - constants

        def job(connection: sqlite3.Connection) -> Sequence[Document]:
            return [Document(*row) for row in connection.execute(query, (*values, limit))]

        return await (await self._open()).reader.run(job)

    async def append(
        self,
        log: str,
        entries: Sequence[bytes],
        *,
        after: int | None = None,
        last: bool = False,
        ttl: float | None = None,
    ) -> int:
        if not entries:
            raise ValueError("an append needs at least one entry")
        return await (await self._open()).appender.append(log, entries, after=after, last=last, ttl=ttl)

    async def read(self, log: str, after: int = 0, limit: int = 200) -> LogPage:
        def job(connection: sqlite3.Connection) -> LogPage:
            row = connection.execute(READ, (log, after, limit, log, time.time())).fetchone()
            if row is None:
                return LogPage((), 0, ended=False)
            last, closed, found = row
            entries = [(position, bytes.fromhex(value)) for position, value in json.loads(found)]
            reached = entries[-1][0] if entries else after
            return LogPage(entries, last, ended=bool(closed) and reached >= last)

        return await (await self._open()).reader.run(job)

    async def follow(self, log: str, after: int = 0) -> AsyncGenerator[tuple[int, bytes], None]:
        threads = await self._open()
        async with threads.watcher.follower(log) as follower:
            reading = follow_log(lambda position: self.read(log, position, FOLLOW_ENTRIES), follower, after)
            async with aclosing(reading) as entries:
                async for entry in entries:
                    yield entry

    async def take(self, key: str, amount: float, *, capacity: float, per_seconds: float) -> float:
        def job(connection: sqlite3.Connection) -> float:
            now = time.time()
            row = connection.execute("SELECT level, filled_at FROM buckets WHERE key = ?", (key,)).fetchone()
            level, filled_at = row or (capacity, now)
            level = min(capacity, level + max(0.0, now - filled_at) * capacity / per_seconds)
            if level < amount:
                return (amount - level) * per_seconds / capacity
            connection.execute(
                "INSERT OR REPLACE INTO buckets (key, level, filled_at, expires_at) VALUES (?, ?, ?, ?)",
                (key, level - amount, now, now + per_seconds),
            )
            return 0.0

        return await (await self._open()).writer.run(job)

    async def signal(self, channel: str, message: bytes) -> None:
        threads = await self._open()

        def job(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT INTO signals (channel, message, writer, expires_at) VALUES (?, ?, ?, ?)",
                (channel, message, self._id, time.time() + SIGNAL_SECONDS),
            )

        await threads.writer.run(job, lambda: threads.watcher.deliver(channel, message))

    def signals(self, channel: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._signals(channel)

    async def aclose(self) -> None:
        opened, self._opened, self._threads = self._opened, None, None
        if opened is None:
            return
        await asyncio.wait([opened])
        if opened.exception() is not None:
            return
        threads = opened.result()
        await threads.appender.aclose()
        await threads.watcher.aclose()
        await threads.reader.aclose()
        await threads.writer.aclose()

    @asynccontextmanager
    async def _signals(self, channel: str) -> AsyncIterator[AsyncIterator[bytes]]:
        threads = await self._open()
        async with threads.watcher.subscriber(channel) as messages:
            yield messages

    async def _open(self) -> _Threads:
        if self._threads is not None:
            return self._threads
        if self._opened is None or (self._opened.done() and self._opened.exception() is not None):
            self._opened = asyncio.create_task(self._start())
        return await asyncio.shield(self._opened)

    async def _start(self) -> _Threads:
        try:
            await asyncio.to_thread(prepare, self._path)
        except (OSError, sqlite3.Error) as error:
            raise store_unavailable(self._path, error) from error
        writer, watcher = SqliteThread(self._path, writes=True), Watcher(self._path, self._id)
        appender = Appender(writer, self._id, watcher.appended)
        self._threads = _Threads(writer, SqliteThread(self._path, writes=False), watcher, appender)
        return self._threads


def _expiry(now: float, ttl: float | None) -> float | None:
    return None if ttl is None else now + ttl


def _forget_expired(connection: sqlite3.Connection, kind: str, key: str, now: float) -> None:
    connection.execute("DELETE FROM documents WHERE kind = ? AND key = ? AND expires_at <= ?", (kind, key, now))
