"""Threads that own one SQLite connection each: the event loop never waits for a disk or for another process's lock.

Jobs that wait together share one transaction, so a thousand streams cost one commit per batch and not one each.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from gateway.errors import GatewayError, InternalError

log = logging.getLogger("polywire")

Result = TypeVar("Result")
Job = Callable[[sqlite3.Connection], Result]

BUSY_SECONDS = 10.0
"""How long a writer waits for the other workers' transactions."""
MOST_JOBS = 200
MOST_WAITING = 1000
PURGE_SECONDS = 30.0
FORMAT = 1
SCHEMA = f"""
CREATE TABLE IF NOT EXISTS documents (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL,
    owner TEXT NOT NULL, version INTEGER NOT NULL, created_at REAL NOT NULL, expires_at REAL, UNIQUE (kind, key));
CREATE INDEX IF NOT EXISTS documents_by_owner ON documents (kind, owner, seq);
CREATE INDEX IF NOT EXISTS documents_by_expiry ON documents (expires_at) WHERE expires_at IS NOT NULL;
CREATE TABLE IF NOT EXISTS logs (
    name TEXT PRIMARY KEY, last INTEGER NOT NULL, closed INTEGER NOT NULL, expires_at REAL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS entries (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, log TEXT NOT NULL, position INTEGER NOT NULL, value BLOB NOT NULL,
    writer INTEGER NOT NULL, last INTEGER NOT NULL, UNIQUE (log, position));
CREATE TABLE IF NOT EXISTS signals (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, channel TEXT NOT NULL, message BLOB NOT NULL, writer INTEGER NOT NULL,
    expires_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS buckets (
    key TEXT PRIMARY KEY, level REAL NOT NULL, filled_at REAL NOT NULL, expires_at REAL NOT NULL) WITHOUT ROWID;
PRAGMA user_version = {FORMAT};
"""


def connect(path: Path) -> sqlite3.Connection:
    """A connection whose transactions are ours to begin. It is used by the calling thread alone."""
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    # In WAL mode NORMAL survives the death of the process; only a power cut may lose the last commits.
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def prepare(path: Path) -> None:
    """Create the file, readable by its owner alone, and its tables. Several processes may do so at once.

    Raises InternalError for a file of another format.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    connection = connect(path)
    try:
        _enter_wal(connection)
        (found,) = connection.execute("PRAGMA user_version").fetchone()
        if found not in (0, FORMAT):
            raise InternalError(f"The store {str(path)!r} has format {found}, not {FORMAT}; name another file.")
        connection.execute("PRAGMA journal_size_limit = 67108864")
        connection.executescript(f"BEGIN IMMEDIATE; {SCHEMA} COMMIT;")
    finally:
        connection.close()


def _enter_wal(connection: sqlite3.Connection) -> None:
    """Switching to WAL takes a lock that SQLite does not wait for."""
    give_up = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.01)
        else:
            return


def purge(connection: sqlite3.Connection) -> None:
    """Delete what has expired, a bounded piece of it at a time."""
    now = time.time()
    connection.execute("DELETE FROM documents WHERE expires_at <= ?", (now,))
    connection.execute("DELETE FROM signals WHERE expires_at <= ?", (now,))
    connection.execute("DELETE FROM buckets WHERE expires_at <= ?", (now,))
    expired = "SELECT name FROM logs WHERE expires_at <= ? LIMIT 50"
    connection.execute(
        f"DELETE FROM entries WHERE seq IN (SELECT seq FROM entries WHERE log IN ({expired}) LIMIT 10000)",  # noqa: S608 - constants
        (now,),
    )
    connection.execute(
        "DELETE FROM logs WHERE expires_at <= ? AND NOT EXISTS (SELECT 1 FROM entries WHERE log = name)", (now,)
    )


@dataclass(slots=True)
class _Waiting:
    job: Job[Any]
    future: asyncio.Future[Any]
    then: Callable[[], None] | None
    result: Any = None
    error: Exception | None = None


class SqliteThread:
    """One connection in its thread. A writer's jobs run in one transaction per batch; a reader has none."""

    def __init__(self, path: Path, *, writes: bool) -> None:
        self._path = path
        self._writes = writes
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Semaphore(MOST_WAITING)
        self._jobs: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._ended = asyncio.Event()
        self._purged_at = 0.0
        self._thread = threading.Thread(target=self._work, name="polywire-store", daemon=True)
        self._thread.start()

    async def run(self, job: Job[Result], then: Callable[[], None] | None = None) -> Result:
        """The job's result; `then` is called in the event loop once it holds, even if the caller has gone."""
        async with self._room:
            waiting = _Waiting(job, self._loop.create_future(), then)
            self._jobs.put(waiting)
            result: Result = await waiting.future
            return result

    async def aclose(self) -> None:
        """Finish what waits, then close the connection."""
        self._jobs.put(None)
        await self._ended.wait()
        self._thread.join()

    def _work(self) -> None:
        connection = connect(self._path)
        try:
            while (batch := self._take(connection)) is not None:
                self._perform(connection, batch)
                self._loop.call_soon_threadsafe(_settle, batch)
        finally:
            connection.close()
            self._loop.call_soon_threadsafe(self._ended.set)

    def _take(self, connection: sqlite3.Connection) -> list[_Waiting] | None:
        """The jobs that wait, None at the end. In quiet times a writer tidies up."""
        while True:
            try:
                first = self._jobs.get(timeout=PURGE_SECONDS)
            except queue.Empty:
                self._perform(connection, [])
            else:
                break
        if first is None:
            return None
        batch = [first]
        while len(batch) < MOST_JOBS and not self._jobs.empty():
            job = self._jobs.get()
            if job is None:
                self._jobs.put(None)
                break
            batch.append(job)
        return batch

    def _perform(self, connection: sqlite3.Connection, batch: list[_Waiting]) -> None:
        """Run a batch; if one of its jobs fails, each runs alone, so that a job's fault is its caller's only."""
        try:
            if self._writes:
                connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            self._fail(batch, error)
            return
        try:
            for waiting in batch:
                _attempt(waiting, connection)
            if self._writes:
                self._tidy(connection)
                connection.execute("COMMIT")
        except Exception as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if len(batch) <= 1:
                self._fail(batch, error)
                return
            for waiting in batch:
                self._perform(connection, [waiting])

    def _fail(self, batch: list[_Waiting], error: Exception) -> None:
        log.error("the store %s failed: %s", self._path, error)
        for waiting in batch:
            known = isinstance(error, sqlite3.OperationalError)
            waiting.error = store_unavailable(self._path, error) if known else error

    def _tidy(self, connection: sqlite3.Connection) -> None:
        now = time.monotonic()
        if now - self._purged_at > PURGE_SECONDS:
            self._purged_at = now
            purge(connection)


def store_unavailable(path: Path, cause: Exception) -> GatewayError:
    """The store cannot be used now; the cause is SQLite's own sentence and holds no data."""
    return GatewayError(
        f"The store {path.name!r} cannot be used: {cause}. Name a file that can be written with POLYWIRE_STORE.",
        status=503,
        code="store_unavailable",
        retryable=True,
    )


def _attempt(waiting: _Waiting, connection: sqlite3.Connection) -> None:
    """A job refuses before it writes, so that a refusal leaves the others' transaction whole."""
    waiting.error = None
    try:
        waiting.result = waiting.job(connection)
    except GatewayError as error:
        waiting.error = error


def _settle(batch: list[_Waiting]) -> None:
    for waiting in batch:
        if waiting.error is None and waiting.then is not None:
            waiting.then()
        if waiting.future.done():
            continue
        if waiting.error is not None:
            waiting.future.set_exception(waiting.error)
        else:
            waiting.future.set_result(waiting.result)
