"""Who waits for news, and how it reaches them: this process's own at once, another worker's by watching the file.

SQLite has no notifications. One thread asks `PRAGMA data_version`, which reads a counter in shared memory, every 5 ms
while something happens and every 50 ms when nothing does; it wakes only those whose log or channel has news.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from stores.sqlite_threads import connect

log = logging.getLogger("polywire")

FASTEST = 0.005
SLOWEST = 0.05
SLOWING = 1.1
MOST_UNREAD = 1000
"""Messages that one subscriber may leave unread; older ones are dropped."""


@dataclass(slots=True)
class _Mailbox:
    messages: deque[bytes] = field(default_factory=lambda: deque(maxlen=MOST_UNREAD))
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def receive(self) -> AsyncIterator[bytes]:
        while True:
            while self.messages:
                yield self.messages.popleft()
            self.arrived.clear()
            await self.arrived.wait()


class Watcher:
    """Wakes the followers of logs and the subscribers of channels. `writer` marks the rows of this process."""

    def __init__(self, path: Path, writer: int) -> None:
        self._path = path
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._followers: dict[str, set[asyncio.Event]] = {}
        self._subscribers: dict[str, list[_Mailbox]] = {}
        self._ready = asyncio.Event()
        self._ended = asyncio.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="polywire-store-watch", daemon=True)
        self._thread.start()

    async def ready(self) -> None:
        """From here on nothing that another worker writes goes unnoticed."""
        await self._ready.wait()

    @contextmanager
    def follower(self, name: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever the log `name` has grown."""
        event = asyncio.Event()
        self._followers.setdefault(name, set()).add(event)
        try:
            yield event
        finally:
            self._followers[name].discard(event)
            if not self._followers[name]:
                del self._followers[name]

    @asynccontextmanager
    async def subscriber(self, channel: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """The messages to `channel` from now on."""
        await self.ready()
        mailbox = _Mailbox()
        self._subscribers.setdefault(channel, []).append(mailbox)
        try:
            yield mailbox.receive()
        finally:
            self._subscribers[channel].remove(mailbox)
            if not self._subscribers[channel]:
                del self._subscribers[channel]

    def wake(self, name: str) -> None:
        """The log `name` has grown."""
        for event in self._followers.get(name, ()):
            event.set()

    def deliver(self, channel: str, message: bytes) -> None:
        """A message for every subscriber in this process."""
        for mailbox in self._subscribers.get(channel, ()):
            mailbox.messages.append(message)
            mailbox.arrived.set()

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
                entries, signals = self._tell(connection, entries, signals)
                seen, pause = version, FASTEST
            except sqlite3.Error as error:
                log.error("the store %s could not be watched: %s", self._path, error)
                pause = SLOWEST

    def _tell(self, connection: sqlite3.Connection, entries: int, signals: int) -> tuple[int, int]:
        """Tell the event loop what other processes wrote after `entries` and `signals`; gives how far that reached."""
        last_entry, last_signal = _latest(connection)
        logs = connection.execute(
            "SELECT DISTINCT log FROM entries WHERE seq > ? AND seq <= ? AND writer <> ?",
            (entries, last_entry, self._writer),
        ).fetchall()
        messages = connection.execute(
            "SELECT channel, message FROM signals WHERE seq > ? AND seq <= ? AND writer <> ? ORDER BY seq",
            (signals, last_signal, self._writer),
        ).fetchall()
        if logs or messages:
            self._loop.call_soon_threadsafe(self._announce, logs, messages)
        return max(entries, last_entry), max(signals, last_signal)

    def _announce(self, logs: list[tuple[str]], messages: list[tuple[str, bytes]]) -> None:
        for (name,) in logs:
            self.wake(name)
        for channel, message in messages:
            self.deliver(channel, message)


def _latest(connection: sqlite3.Connection) -> tuple[int, int]:
    """The highest `seq` of entries and signals."""
    row = connection.execute(
        "SELECT coalesce((SELECT max(seq) FROM entries), 0), coalesce((SELECT max(seq) FROM signals), 0)"
    ).fetchone()
    return int(row[0]), int(row[1])
