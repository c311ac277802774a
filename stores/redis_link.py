"""Commands of all streams sent together: what comes while one round trip is under way is the next one.

A thousand streams cost one round trip per batch and not one each. A command is sent again after a broken connection
only if doing it twice does no harm; callers wait for as long as each of them said, and are then told that the store is
away.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redis.asyncio.connection import Connection
from redis.exceptions import NoScriptError, ReadOnlyError, ResponseError

from stores.redis_connection import LOST, Server, disconnect

MOST_COMMANDS = 500
MOST_BYTES = 1024 * 1024
MOST_WAITING = 2000
BATCH_SECONDS = 10.0
"""How long a server may take for one batch; then the connection counts as broken."""
CLOSE_SECONDS = 0.25
PAUSES = (0.02, 1.0)
"""The first and the longest pause before a server that failed is tried again."""
UNDONE = (NoScriptError, ReadOnlyError)
"""Refusals of commands that were not done, which the next connection may not meet."""

Argument = bytes | str | int | float


@dataclass(slots=True, eq=False)
class _Command:
    packed: bytes
    repeat: bool
    lane: str | None
    future: asyncio.Future[Any]


class RedisLink:
    """One connection to `server`, made by its first use."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._connection: Connection | None = None
        self._room = asyncio.Semaphore(MOST_WAITING)
        self._waiting: list[_Command] = []
        self._working: asyncio.Task[None] | None = None
        self._pause = PAUSES[0]

    async def run(self, *arguments: Argument, patience: float, repeat: bool, lane: str | None = None) -> Any:
        """The server's answer. `repeat`: it may be sent again; of one `lane` one command is under way at a time.

        Raises GatewayError 503 after `patience` seconds; a command that was not sent by then never is.
        """
        packed = _pack(arguments)
        command: _Command | None = None
        try:
            async with asyncio.timeout(patience), self._room:
                future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                command = _Command(packed, repeat, lane, future)
                self._waiting.append(command)
                if self._working is None or self._working.done():
                    self._working = asyncio.create_task(self._work())
                # A caller that is cancelled leaves its command to be done.
                return await asyncio.shield(future)
        except TimeoutError as error:
            if command is not None:
                command.future.cancel()
            raise self._server.unavailable() from error

    async def aclose(self) -> None:
        """Send what waits, if the server takes it soon, and disconnect."""
        if self._working is not None:
            await asyncio.wait([self._working], timeout=CLOSE_SECONDS)
            self._working.cancel()
            await asyncio.wait([self._working])
        for command in self._waiting:
            if not command.future.done():
                command.future.set_exception(self._server.unavailable())
        if self._connection is not None:
            await disconnect(self._connection)

    async def _work(self) -> None:
        while batch := self._take():
            try:
                async with asyncio.timeout(BATCH_SECONDS):
                    if self._connection is None:
                        self._connection = await self._server.connect()
            except LOST as error:
                self._waiting[:0] = batch
                await self._back_off(error)
                continue
            try:
                async with asyncio.timeout(BATCH_SECONDS):
                    replies = await _exchange(self._connection, batch)
            except LOST as error:
                self._fail(batch, error)
                await self._back_off(error)
            else:
                await self._settle(batch, replies)

    def _take(self) -> list[_Command]:
        """The next batch, without those whose callers have given up."""
        batch: list[_Command] = []
        rest: list[_Command] = []
        lanes: set[str] = set()
        size = 0
        for command in self._waiting:
            if command.future.done():
                continue
            full = len(batch) >= MOST_COMMANDS or (batch and size + len(command.packed) > MOST_BYTES)
            if full or command.lane in lanes:
                rest.append(command)
            else:
                batch.append(command)
                size += len(command.packed)
            if command.lane is not None:
                lanes.add(command.lane)
        self._waiting = rest
        return batch

    async def _settle(self, batch: Sequence[_Command], replies: Sequence[Any]) -> None:
        undone: list[_Command] = []
        reason: Exception | None = None
        for command, reply in zip(batch, replies, strict=True):
            if isinstance(reply, UNDONE):
                undone.append(command)
                reason = reply
            elif command.future.done():
                continue
            elif isinstance(reply, Exception):
                command.future.set_exception(self._server.unavailable(reply))
            else:
                command.future.set_result(reply)
        if reason is None:
            self._pause = PAUSES[0]
        else:
            self._waiting[:0] = undone
            await self._back_off(reason)

    def _fail(self, batch: Sequence[_Command], error: Exception) -> None:
        """The connection broke: nobody knows what of the batch was done."""
        self._waiting[:0] = [command for command in batch if command.repeat]
        for command in batch:
            if not command.repeat and not command.future.done():
                command.future.set_exception(self._server.unavailable(error))

    async def _back_off(self, error: Exception) -> None:
        self._server.report(error)
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await disconnect(connection)
        await asyncio.sleep(self._pause * random.uniform(0.5, 1))  # noqa: S311 - not a secret
        self._pause = min(self._pause * 2, PAUSES[1])


async def _exchange(connection: Connection, batch: Sequence[_Command]) -> list[Any]:
    """The answers in order, refusals among them. Raises one of LOST when the connection breaks."""
    await connection.send_packed_command([command.packed for command in batch], check_health=False)
    replies: list[Any] = []
    for _ in batch:
        try:
            replies.append(await connection.read_response())
        except ResponseError as refusal:
            replies.append(refusal)
    return replies


def _pack(arguments: Sequence[Argument]) -> bytes:
    """One command as it is sent. A value of a wrong type is its caller's TypeError and not the batch's failure."""
    parts = [b"*%d\r\n" % len(arguments)]
    for argument in arguments:
        if isinstance(argument, str):
            value = argument.encode("utf-8", "surrogatepass")
        elif isinstance(argument, bytes):
            value = argument
        elif isinstance(argument, int | float):
            value = repr(argument).encode()
        else:
            raise TypeError(f"a store keeps bytes, not {type(argument).__name__}")
        parts += (b"$%d\r\n" % len(value), value, b"\r\n")
    return b"".join(parts)
