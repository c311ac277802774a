"""What other processes write and say, pushed by Redis over one subscribed connection.

Redis may lose what it pushes when a connection breaks; so whoever listens to a log reads it again after each new
connection, and now and then when nothing came. A server that stays away is told to the readers as an error.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from redis.asyncio.connection import Connection

from stores.following import Follower, Mailbox
from stores.redis_connection import LOST, Server, disconnect

log = logging.getLogger("polywire")

PAUSES = (0.02, 1.0)
PING_SECONDS = 1.0
SILENT_SECONDS = 3.0
"""A server that answers no ping for so long is connected to anew."""
LOST_SECONDS = 10.0
"""How long readers wait for a server that does not answer."""
LOOK_SECONDS = 5.0
"""How often a log of which nothing was heard is looked at: it may have been lost with its server."""


@dataclass(slots=True, eq=False)
class LogFollower(Follower):
    """A follower who takes news of one epoch only: a log that was lost and begun anew is another log."""

    epoch: bytes | None = None


@dataclass(slots=True, eq=False)
class _Topic:
    listeners: list[LogFollower | Mailbox] = field(default_factory=list)
    subscribed: asyncio.Event = field(default_factory=asyncio.Event)


class RedisHub:
    """Listens to the channels of `server` that this process needs; connects at the first one."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._topics: dict[bytes, _Topic] = {}
        self._unconfirmed: Counter[bytes] = Counter()
        self._connection: Connection | None = None
        self._working: asyncio.Task[None] | None = None
        self._heard = 0.0

    @asynccontextmanager
    async def follower(self, channel: str, patience: float) -> AsyncIterator[LogFollower]:
        """Is told what a log's channel brings from now on. Raises GatewayError 503 after `patience` seconds."""
        follower = LogFollower()
        async with self._listening(channel.encode("utf-8", "surrogatepass"), follower, patience):
            yield follower

    @asynccontextmanager
    async def subscriber(self, channel: str, patience: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """The messages on a channel from now on. Raises GatewayError 503 after `patience` seconds."""
        mailbox = Mailbox()
        async with self._listening(channel.encode(), mailbox, patience):
            yield mailbox.receive()

    async def aclose(self) -> None:
        """Stop listening."""
        if self._working is not None:
            self._working.cancel()
            await asyncio.wait([self._working])

    @asynccontextmanager
    async def _listening(self, channel: bytes, listener: LogFollower | Mailbox, patience: float) -> AsyncIterator[None]:
        if self._working is None:
            self._working = asyncio.create_task(self._work())
        topic = self._topics.get(channel)
        if topic is None:
            topic = self._topics[channel] = _Topic([listener])
            await self._say(b"SUBSCRIBE", channel)
        else:
            topic.listeners.append(listener)
        try:
            try:
                async with asyncio.timeout(patience):
                    await topic.subscribed.wait()
            except TimeoutError as error:
                raise self._server.unavailable() from error
            yield
        finally:
            topic.listeners.remove(listener)
            if not topic.listeners:
                del self._topics[channel]
                await self._say(b"UNSUBSCRIBE", channel)

    async def _say(self, verb: bytes, *channels: bytes) -> None:
        """Subscribe or unsubscribe. Without a connection there is nothing to say: the next one subscribes to all."""
        connection = self._connection
        if connection is None or not connection.is_connected:
            return
        if verb == b"SUBSCRIBE":
            self._unconfirmed.update(channels)
        with suppress(*LOST):
            await connection.send_command(verb, *channels, check_health=False)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        pause = PAUSES[0]
        self._heard = loop.time()
        while True:
            connection: Connection | None = None
            try:
                connection = await self._server.connect()
                pause = PAUSES[0]
                await self._listen(connection)
            except LOST as error:
                self._server.report(error)
            finally:
                self._connection = None
                self._unconfirmed.clear()
                if connection is not None:
                    await disconnect(connection)
            for topic in self._topics.values():
                topic.subscribed.clear()
            if loop.time() - self._heard > LOST_SECONDS:
                self._give_up()
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - not a secret
            pause = min(pause * 2, PAUSES[1])

    async def _listen(self, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        self._connection = connection
        if self._topics:
            await self._say(b"SUBSCRIBE", *self._topics)
        self._heard = asked = looked = loop.time()
        while True:
            message = await connection.read_response(timeout=PING_SECONDS)
            now = loop.time()
            if message is not None:
                self._heard = now
                if isinstance(message, list):
                    self._take(message)
            elif now - self._heard > SILENT_SECONDS:
                raise TimeoutError
            if now - asked > PING_SECONDS:
                asked = now
                await connection.send_command(b"PING", check_health=False)
            if now - looked > LOOK_SECONDS:
                looked = now
                self._look()

    def _take(self, message: list[bytes]) -> None:
        match message:
            case [b"message", channel, data]:
                if (topic := self._topics.get(channel)) is not None:
                    _deliver(topic.listeners, data)
            case [b"subscribe", channel, _]:
                self._unconfirmed[channel] -= 1
                # A channel that was left and taken again is subscribed when its last confirmation is there.
                if self._unconfirmed[channel] <= 0 and (topic := self._topics.get(channel)) is not None:
                    topic.subscribed.set()
                    for listener in topic.listeners:
                        if isinstance(listener, LogFollower):
                            listener.look()

    def _followers(self) -> list[LogFollower]:
        return [each for topic in self._topics.values() for each in topic.listeners if isinstance(each, LogFollower)]

    def _look(self) -> None:
        for follower in self._followers():
            if not follower.heard:
                follower.look()
            follower.heard = False

    def _give_up(self) -> None:
        for follower in self._followers():
            follower.fail(self._server.unavailable())


def unpack_news(payload: bytes) -> tuple[bytes, int, bool, list[bytes]]:
    """The epoch, first position, whether they close the log, and the entries that the script APPEND published."""
    head, _, rest = payload.partition(b"\n")
    epoch, first, last = head.split(b" ")
    entries, place = [], 0
    while place < len(rest):
        end = place + 4 + int.from_bytes(rest[place : place + 4])
        entries.append(rest[place + 4 : end])
        place = end
    return epoch, int(first), last == b"1", entries


def _deliver(listeners: Sequence[LogFollower | Mailbox], data: bytes) -> None:
    news = None
    for listener in listeners:
        if isinstance(listener, Mailbox):
            listener.put(data)
            continue
        news = news or unpack_news(data)
        epoch, first, last, entries = news
        if listener.epoch == epoch:
            listener.tell(first, entries, last)
        else:
            listener.look()
