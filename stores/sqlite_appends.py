"""Appends of all streams written together: what comes while one batch is being written is the next one.

A batch is four statements however many logs it touches. Each statement hands Python's lock to the event loop and waits
to get it back, so a statement per entry would leave a busy worker's streams waiting for each other.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from gateway.errors import Conflict
from stores.following import log_closed, log_moved
from stores.sqlite_threads import SqliteThread

MOST_APPENDS = 500
MOST_WAITING = 2000
ROWS_AT_ONCE = 1000

Told = Callable[[str, int, Sequence[bytes], bool], None]
"""Is called with a log, the position of the first new entry, the entries, and whether they close the log."""


@dataclass(slots=True)
class _Append:
    log: str
    entries: Sequence[bytes]
    after: int | None
    last: bool
    ttl: float | None
    future: asyncio.Future[int]
    first: int = 0
    refused: Conflict | None = None


@dataclass(slots=True)
class _Log:
    last: int = 0
    closed: bool = False
    expires_at: float | None = None
    changed: bool = field(default=False)


class Appender:
    """Appends by way of `writer`. `told` hears of every append once it is stored, even if its caller has gone."""

    def __init__(self, writer: SqliteThread, process: int, told: Told) -> None:
        self._writer = writer
        self._process = process
        self._told = told
        self._room = asyncio.Semaphore(MOST_WAITING)
        self._waiting: list[_Append] = []
        self._working: asyncio.Task[None] | None = None

    async def append(
        self, log: str, entries: Sequence[bytes], *, after: int | None, last: bool, ttl: float | None
    ) -> int:
        """The position of the last entry. Raises Conflict for a log that is closed or does not end at `after`."""
        # A wrong value is refused here: in the batch it would be every caller's failure.
        log.encode()
        b"".join(entries)
        async with self._room:
            future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            self._waiting.append(_Append(log, tuple(entries), after, last, ttl, future))
            if self._working is None or self._working.done():
                self._working = asyncio.create_task(self._work())
            return await future

    async def aclose(self) -> None:
        """Write what waits."""
        if self._working is not None:
            await self._working

    async def _work(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:MOST_APPENDS], self._waiting[MOST_APPENDS:]
            failure: Exception | None = None
            try:
                await self._writer.run(partial(_write, batch=batch, process=self._process))
            except Exception as error:
                failure = error
            for append in batch:
                self._settle(append, failure)

    def _settle(self, append: _Append, failure: Exception | None) -> None:
        if failure is None and append.refused is None:
            self._told(append.log, append.first, append.entries, append.last)
        if append.future.done():
            return
        if failure is not None:
            append.future.set_exception(failure)
        elif append.refused is not None:
            append.future.set_exception(append.refused)
        else:
            append.future.set_result(append.first + len(append.entries) - 1)


def _write(connection: sqlite3.Connection, batch: Sequence[_Append], process: int) -> None:
    now = time.time()
    logs = _logs(connection, {append.log for append in batch}, now)
    rows: list[tuple[object, ...]] = []
    for append in batch:
        log = logs[append.log]
        append.refused = _refusal(append, log)
        if append.refused is not None:
            continue
        append.first = log.last + 1
        final = len(append.entries) - 1
        rows += (
            (append.log, append.first + n, entry, process, append.last and n == final)
            for n, entry in enumerate(append.entries)
        )
        log.last += len(append.entries)
        log.closed, log.changed = append.last, True
        log.expires_at = log.expires_at if append.ttl is None else now + append.ttl
    _insert(connection, "INSERT INTO entries (log, position, value, writer, last) VALUES ", rows)
    changed = [(name, log.last, log.closed, log.expires_at) for name, log in logs.items() if log.changed]
    _insert(connection, "INSERT OR REPLACE INTO logs (name, last, closed, expires_at) VALUES ", changed)


def _refusal(append: _Append, log: _Log) -> Conflict | None:
    if log.closed:
        return log_closed()
    return None if append.after in (None, log.last) else log_moved()


def _logs(connection: sqlite3.Connection, names: set[str], now: float) -> dict[str, _Log]:
    """The logs as they are; an expired one is emptied and begins anew."""
    logs = {name: _Log() for name in names}
    (found,) = connection.execute(
        "SELECT json_group_array(json_array(name, last, closed, expires_at)) FROM logs"
        " WHERE name IN (SELECT value FROM json_each(?))",
        (json.dumps(list(names)),),
    ).fetchone()
    for name, last, closed, expires_at in json.loads(found):
        if expires_at is not None and expires_at <= now:
            connection.execute("DELETE FROM entries WHERE log = ?", (name,))
        else:
            logs[name] = _Log(last, bool(closed), expires_at)
    return logs


def _insert(connection: sqlite3.Connection, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
    for start in range(0, len(rows), ROWS_AT_ONCE):
        some = rows[start : start + ROWS_AT_ONCE]
        row = f"({', '.join('?' * len(some[0]))})"
        connection.execute(statement + ", ".join([row] * len(some)), [value for values in some for value in values])
