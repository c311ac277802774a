"""Readers of logs and listeners of channels in this process: what a store's watcher tells them, and how they keep up.

A follower that was told everything reads nothing from the store; one that missed something reads the store again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

from gateway.errors import Conflict, GatewayError, NotFound
from gateway.ports import LogPage

MOST_UNREAD = 1000
"""What one listener may leave unread: of messages the oldest are dropped, of entries the store is read again."""
FOLLOW_ENTRIES = 200


def log_closed() -> Conflict:
    """Why a closed log takes nothing more."""
    return Conflict("This log is closed.", code="log_closed")


def log_moved() -> Conflict:
    """Why a log is not continued by one who thinks that it ends elsewhere."""
    return Conflict("The store has lost a part of this log, or another has written to it.", code="log_moved")


@dataclass(slots=True, eq=False)
class Follower:
    """One reader of a log. While it is not `behind`, all that is new is told to it; else it must read the store."""

    behind: bool = True
    heard: bool = False
    """Whether something was told since the watcher looked last."""
    error: GatewayError | None = None
    """Why nothing more can be told."""
    _news: deque[tuple[int, bytes, bool]] = field(default_factory=deque)
    _told: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, first: int, entries: Sequence[bytes], last: bool) -> None:
        """Entries from position `first` on; `last`: they close the log."""
        if len(self._news) + len(entries) > MOST_UNREAD:
            self._news.clear()
            self.behind = True
        else:
            final = len(entries) - 1
            self._news.extend((first + n, entry, last and n == final) for n, entry in enumerate(entries))
        self.heard = True
        self._told.set()

    def look(self) -> None:
        """Read the store again: something may have been missed."""
        self.behind = True
        self._told.set()

    def fail(self, error: GatewayError) -> None:
        """Nothing more will be told."""
        self.error = error
        self._told.set()

    def news(self, after: int) -> Iterator[tuple[int, bytes, bool]]:
        """What follows position `after` without a gap; at a gap the follower is behind."""
        self._told.clear()
        while self._news and not self.behind:
            position, entry, last = self._news.popleft()
            if position > after + 1:
                self.behind = True
            elif position == after + 1:
                after = position
                yield position, entry, last

    async def wait(self) -> None:
        """Wait until something is told, or was since `news`. Raises why nothing will be."""
        await self._told.wait()
        if self.error is not None:
            raise self.error


async def follow_log(
    read: Callable[[int], Awaitable[LogPage]], follower: Follower, after: int
) -> AsyncGenerator[tuple[int, bytes], None]:
    """Every entry after position `after` until the log's end. `read` gives at most FOLLOW_ENTRIES after a position.

    Raises NotFound when the log expires meanwhile.
    """
    while True:
        if follower.behind:
            # Before the store is read, so that what comes meanwhile is not missed.
            follower.behind = False
            page = await read(after)
            if page.last < after:
                raise NotFound("This log has expired.", code="log_expired")
            for position, entry in page.entries:
                after = position
                yield position, entry
            if page.ended:
                return
            follower.behind |= len(page.entries) == FOLLOW_ENTRIES
        for position, entry, last in follower.news(after):
            after = position
            yield position, entry
            if last:
                return
        if not follower.behind:
            await follower.wait()


@dataclass(slots=True, eq=False)
class Mailbox:
    """What one subscriber of a channel has not received yet."""

    messages: deque[bytes] = field(default_factory=lambda: deque(maxlen=MOST_UNREAD))
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, message: bytes) -> None:
        """One more message."""
        self.messages.append(message)
        self.arrived.set()

    async def receive(self) -> AsyncIterator[bytes]:
        """The messages as they come."""
        while True:
            while self.messages:
                yield self.messages.popleft()
            self.arrived.clear()
            await self.arrived.wait()
