"""Who waits for news, and how it reaches them: this process's own at once, another worker's by watching the file.

SQLite has no notifications. One thread asks `PRAGMA data_version`, which reads a counter in shared memory, every 5 ms
while something happens and every 50 ms when nothing does; it wakes only those whose log or channel has news. While
nobody waits for any, it sleeps.
"""

from __future__ import annotations

import asyncio
import json
import logging
import queue
import sqlite3
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from stores.following import Follower, Mailbox
from stores.sqlite_threads import connect

log = logging.getLogger("polywire")

Waiter = TypeVar("Waiter", Follower, Mailbox)

FASTEST = 0.005
SLOWEST = 0.05
SLOWING = 1.1
NEWS_AT_ONCE = 500
NEWS = f"""
SELECT json_group_array(json_array(seq, log, position, hex(value), last)) FROM (
    SELECT * FROM entries WHERE seq > ? AND seq <= ? AND writer <> ? AND log IN (SELECT value FROM json_each(?))
    ORDER BY seq LIMIT {NEWS_AT_ONCE})"""  # noqa: S608 - a constant
"""One row, since each costs a turn of Python's lock."""


class Watcher:
    """Wakes the followers of logs and the subscribers of channels. `writer` marks the rows of this process."""

    def __init__(self, path: Path, writer: int) -> None:
        self._path = path
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._followers: dict[str, list[Follower]] = {}
        self._subscribers: dict[str, list[Mailbox]] = {}
        self._awake: asyncio.Event | None = None
        self._orders: queue.SimpleQueue[asyncio.Event | None] = queue.SimpleQueue()
        self._ended = asyncio.Event()
        self._seen: int | None = None
        self._place = (0, 0)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="polywire-store-watch", daemon=True)
        self._thread.start()

    @asynccontextmanager
    async def follower(self, name: str) -> AsyncIterator[Follower]:
        """Is told what is appended to the log `name` from now on."""
        follower = Follower()
        async with self._watching(self._followers, name, follower):
            yield follower

    @asynccontextmanager
    async def subscriber(self, channel: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """The messages to `channel` from now on."""
        mailbox = Mailbox()
        async with self._watching(self._subscribers, channel, mailbox):
            yield mailbox.receive()

    def appended(self, name: str, first: int, entries: Sequence[bytes], last: bool) -> None:
        """Entries were stored in the log `name`, the first of them at position `first`."""
        for follower in self._followers.get(name, ()):
            follower.tell(first, entries, last)

    def deliver(self, channel: str, message: bytes) -> None:
        """A message for every subscriber in this process."""
        for mailbox in self._subscribers.get(channel, ()):
            mailbox.put(message)

    async def aclose(self) -> None:
        """Stop watching."""
        self._stop.set()
        self._orders.put(None)
        await self._ended.wait()
        self._thread.join()

    @asynccontextmanager
    async def _watching(self, waiting: dict[str, list[Waiter]], name: str, waiter: Waiter) -> AsyncIterator[None]:
        """From here to the end of the block nothing that another worker writes goes unnoticed."""
        waiting.setdefault(name, []).append(waiter)
        if self._awake is None:
            self._awake = asyncio.Event()
            self._orders.put(self._awake)
        try:
            await self._awake.wait()
            yield
        finally:
            waiting[name].remove(waiter)
            if not waiting[name]:
                del waiting[name]
            if not (self._followers or self._subscribers):
                self._awake = None
                self._orders.put(None)

    def _work(self) -> None:
        connection = connect(self._path)
        try:
            self._watch(connection)
        finally:
            connection.close()
            self._loop.call_soon_threadsafe(self._ended.set)

    def _watch(self, connection: sqlite3.Connection) -> None:
        """Obey orders, and look for news between them: an event begins the watch, which sets it, and None ends it."""
        pause: float | None = None
        while not self._stop.is_set():
            try:
                begun = self._orders.get(timeout=pause)
            except queue.Empty:
                pause = self._look(connection, pause or FASTEST)
                continue
            pause = None
            if begun is not None and self._begin(connection):
                pause = FASTEST
                self._loop.call_soon_threadsafe(begun.set)

    def _begin(self, connection: sqlite3.Connection) -> bool:
        """Watch from where the store is now; whether that was found before the end."""
        while not self._stop.is_set():
            try:
                self._seen, self._place = None, _latest(connection)
            except sqlite3.Error as error:
                self._report(error)
                self._stop.wait(SLOWEST)
            else:
                return True
        return False

    def _look(self, connection: sqlite3.Connection, pause: float) -> float:
        """Tell what is new. Gives the seconds until the next look."""
        try:
            (version,) = connection.execute("PRAGMA data_version").fetchone()
            if version == self._seen:
                return min(pause * SLOWING, SLOWEST)
            reached = self._tell(connection, *self._place)
            # More may be there than one telling takes; then the next comes at once.
            self._seen, self._place = version if reached == self._place else None, reached
        except sqlite3.Error as error:
            self._report(error)
            return SLOWEST
        return FASTEST

    def _tell(self, connection: sqlite3.Connection, entries: int, signals: int) -> tuple[int, int]:
        """Tell the event loop what other processes wrote after `entries` and `signals`; gives how far that reached."""
        last_entry, last_signal = _latest(connection)
        followed = json.dumps(list(self._followers))
        (found,) = connection.execute(NEWS, (entries, last_entry, self._writer, followed)).fetchone()
        news = json.loads(found)
        if len(news) == NEWS_AT_ONCE:
            last_entry = news[-1][0]
        messages = connection.execute(
            "SELECT channel, message FROM signals WHERE seq > ? AND seq <= ? AND writer <> ? ORDER BY seq",
            (signals, last_signal, self._writer),
        ).fetchall()
        if news or messages:
            self._loop.call_soon_threadsafe(self._announce, news, messages)
        return max(entries, last_entry), max(signals, last_signal)

    def _announce(self, news: list[tuple[int, str, int, str, int]], messages: list[tuple[str, bytes]]) -> None:
        for _, name, position, value, last in news:
            self.appended(name, position, (bytes.fromhex(value),), bool(last))
        for channel, message in messages:
            self.deliver(channel, message)

    def _report(self, error: sqlite3.Error) -> None:
        log.error("the store %s could not be watched: %s", self._path, error)


def _latest(connection: sqlite3.Connection) -> tuple[int, int]:
    """The highest `seq` of entries and signals."""
    row = connection.execute(
        "SELECT coalesce((SELECT max(seq) FROM entries), 0), coalesce((SELECT max(seq) FROM signals), 0)"
    ).fetchone()
    return int(row[0]), int(row[1])
