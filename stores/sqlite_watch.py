"""Who waits for news, and how it reaches them: this process's own at once, another worker's by watching the file.

SQLite has no notifications. One thread asks `PRAGMA data_version`, which reads a counter in shared memory, every 5 ms
while something happens and every 50 ms when nothing does; it wakes only those whose log or channel has news.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from stores.following import Follower, Mailbox
from stores.sqlite_threads import connect

log = logging.getLogger("polywire")

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
        self._ready = asyncio.Event()
        self._ended = asyncio.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="polywire-store-watch", daemon=True)
        self._thread.start()

    async def ready(self) -> None:
        """From here on nothing that another worker writes goes unnoticed."""
        await self._ready.wait()

    @contextmanager
    def follower(self, name: str) -> Iterator[Follower]:
        """Is told what is appended to the log `name` from now on."""
        follower = Follower()
        self._followers.setdefault(name, []).append(follower)
        try:
            yield follower
        finally:
            self._followers[name].remove(follower)
            if not self._followers[name]:
                del self._followers[name]

    @asynccontextmanager
    async def subscriber(self, channel: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """The messages to `channel` from now on."""
        await self.ready()
        mailbox = Mailbox()
        self._subscribers.setdefault(channel, []).append(mailbox)
        try:
            yield mailbox.receive()
        finally:
            self._subscribers[channel].remove(mailbox)
            if not self._subscribers[channel]:
                del self._subscribers[channel]

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
        await self._ended.wait()
        self._thread.join()

    def _work(self) -> None:
        connection = connect(self._path)
        try:
            self._watch(connection)
        finally:
            connection.close()
            self._loop.call_soon_threadsafe(self._ended.set)

    def _watch(self, connection: sqlite3.Connection) -> None:
        entries, signals = _latest(connection)
        self._loop.call_soon_threadsafe(self._ready.set)
        seen, pause = None, FASTEST
        while not self._stop.wait(pause):
            try:
                (version,) = connection.execute("PRAGMA data_version").fetchone()
                if version == seen:
                    pause = min(pause * SLOWING, SLOWEST)
                    continue
                reached = self._tell(connection, entries, signals)
                # More may be there than one telling takes; then the next comes at once.
                seen, pause = version if reached == (entries, signals) else None, FASTEST
                entries, signals = reached
            except sqlite3.Error as error:
                log.error("the store %s could not be watched: %s", self._path, error)
                pause = SLOWEST

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


def _latest(connection: sqlite3.Connection) -> tuple[int, int]:
    """The highest `seq` of entries and signals."""
    row = connection.execute(
        "SELECT coalesce((SELECT max(seq) FROM entries), 0), coalesce((SELECT max(seq) FROM signals), 0)"
    ).fetchone()
    return int(row[0]), int(row[1])
