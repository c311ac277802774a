"""The store of several replicas: one Redis or Valkey (6.2 or newer; one server, or one with replicas, no cluster).

All keys begin with `polywire:`; what expires is dropped by the server. It keeps what Redis keeps: without persistence a
restart forgets everything, which ends the readers of running predictions with an error and never with a gap.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any

from gateway.errors import NotFound
from gateway.ports import Document, LogPage
from stores.following import FOLLOW_ENTRIES, follow_log, log_closed, log_moved
from stores.redis_connection import Server
from stores.redis_hub import RedisHub
from stores.redis_link import Argument, RedisLink
from stores.redis_scripts import APPEND, CLOSED, DELETE, LIST, MOVED, READ, TAKE, WRITE, Script

PREFIX = "polywire"
PATIENCE = 2.0
"""Seconds that a caller waits for a server that does not answer, before it is told so."""
LONG_PATIENCE = 10.0
"""The same for what is under way: the streams that are written down and those who read them."""


class RedisStore:
    """A `Store` in the Redis at `url`, connected by its first use."""

    def __init__(self, url: str) -> None:
        server = Server(url)
        self._link = RedisLink(server)
        self._hub = RedisHub(server)
        # Channels are not bound to a database, so their names are.
        self._channels = f"{PREFIX}:{server.database}"
        self._tokens = map(f"{secrets.token_hex(6)}{{:x}}".format, itertools.count())

    async def put(self, kind: str, key: str, value: bytes, *, owner: str, ttl: float | None = None) -> Document:
        written = await self._write("put", kind, key, value, owner=owner, ttl=ttl)
        assert written is not None  # noqa: S101 - a put is never refused
        return written

    async def add(self, kind: str, key: str, value: bytes, *, owner: str, ttl: float | None = None) -> Document | None:
        return await self._write("add", kind, key, value, owner=owner, ttl=ttl)

    async def get(self, kind: str, key: str) -> Document | None:
        fields = ("value", "owner", "version", "created")
        found = await self._link.run("HMGET", _document(kind, key), *fields, patience=PATIENCE, repeat=True)
        return None if found[0] is None else _as_document(key, *found)

    async def replace(
        self, kind: str, key: str, value: bytes, *, version: int, ttl: float | None = None
    ) -> Document | None:
        return await self._write("replace", kind, key, value, version=version, ttl=ttl)

    async def delete(self, kind: str, key: str) -> bool:
        keys = (_document(kind, key), _index(kind), _expiries(kind))
        return bool(await self._run(DELETE, keys, key, _owned(kind, "")))

    async def list(self, kind: str, *, owner: str | None, limit: int, before: str | None = None) -> Sequence[Document]:
        keys = (_index(kind) if owner is None else _owned(kind, owner), _index(kind))
        found = await self._run(LIST, keys, limit, before or "", _document(kind, ""), repeat=True)
        rows = zip(*[iter(found)] * 5, strict=True)
        return [_as_document(key.decode("utf-8", "surrogatepass"), *fields) for key, *fields in rows]

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
        position: int = await self._run(
            APPEND,
            (_log(log),),
            next(self._tokens),
            "" if after is None else after,
            int(last),
            _milliseconds(ttl),
            self._log_channel(log),
            *entries,
            patience=LONG_PATIENCE,
            repeat=True,
            lane=log,
        )
        if position in (CLOSED, MOVED):
            raise log_closed() if position == CLOSED else log_moved()
        return position

    async def read(self, log: str, after: int = 0, limit: int = 200) -> LogPage:
        return (await self._read(log, after, limit, PATIENCE))[1]

    async def follow(self, log: str, after: int = 0) -> AsyncGenerator[tuple[int, bytes], None]:
        async with self._hub.follower(self._log_channel(log), LONG_PATIENCE) as follower:

            async def read(position: int) -> LogPage:
                epoch, page = await self._read(log, position, FOLLOW_ENTRIES, LONG_PATIENCE)
                if follower.epoch not in (None, epoch):
                    raise NotFound("This log has expired.", code="log_expired")
                follower.epoch = epoch
                return page

            async with aclosing(follow_log(read, follower, after)) as entries:
                async for entry in entries:
                    yield entry

    async def take(self, key: str, amount: float, *, capacity: float, per_seconds: float) -> float:
        return float(await self._run(TAKE, (f"{PREFIX}:bucket:{key}",), amount, capacity, per_seconds))

    async def signal(self, channel: str, message: bytes) -> None:
        await self._link.run("PUBLISH", self._signal_channel(channel), message, patience=PATIENCE, repeat=True)

    def signals(self, channel: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._hub.subscriber(self._signal_channel(channel), PATIENCE)

    async def aclose(self) -> None:
        await self._link.aclose()
        await self._hub.aclose()

    async def _run(
        self,
        script: Script,
        keys: Sequence[str],
        *arguments: Argument,
        patience: float = PATIENCE,
        repeat: bool = False,
        lane: str | None = None,
    ) -> Any:
        command = ("EVALSHA", script.sha, len(keys), *keys, *arguments)
        return await self._link.run(*command, patience=patience, repeat=repeat, lane=lane)

    async def _write(
        self,
        how: str,
        kind: str,
        key: str,
        value: bytes,
        *,
        owner: str = "",
        version: int = 0,
        ttl: float | None = None,
    ) -> Document | None:
        keys = (_document(kind, key), _index(kind), _expiries(kind), f"{PREFIX}:counter")
        prefixes = (_document(kind, ""), _owned(kind, ""))
        written = await self._run(WRITE, keys, how, key, value, owner, _milliseconds(ttl), version, *prefixes)
        return None if written is None else _as_document(key, value, *written)

    async def _read(self, log: str, after: int, limit: int, patience: float) -> tuple[bytes | None, LogPage]:
        found = await self._run(READ, (_log(log),), after, limit, patience=patience, repeat=True)
        if not found:
            return None, LogPage((), 0, ended=False)
        epoch, last, closed, *values = found
        entries = list(enumerate(values, after + 1))
        return epoch, LogPage(entries, last, ended=bool(closed) and after + len(entries) >= last)

    def _log_channel(self, log: str) -> str:
        return f"{self._channels}:log:{log}"

    def _signal_channel(self, channel: str) -> str:
        return f"{self._channels}:signal:{channel}"


def _document(kind: str, key: str) -> str:
    return f"{PREFIX}:document:{kind}:{key}"


def _index(kind: str) -> str:
    return f"{PREFIX}:index:{kind}"


def _owned(kind: str, owner: str) -> str:
    return f"{PREFIX}:owned:{kind}:{owner}"


def _expiries(kind: str) -> str:
    return f"{PREFIX}:expiries:{kind}"


def _log(name: str) -> str:
    return f"{PREFIX}:log:{name}"


def _milliseconds(ttl: float | None) -> str | int:
    return "" if ttl is None else round(ttl * 1000)


def _as_document(key: str, value: bytes, owner: bytes, version: bytes | int, created: bytes) -> Document:
    return Document(key, value, owner.decode(), int(version), float(created))
