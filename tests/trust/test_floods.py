"""A WebSocket whose client sends frames by the thousand: everything is taken in order, nothing piles up, pings end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from websockets.asyncio.client import connect

from tests.faults.bytes_said import frame, handshake
from wires.floods import PINGS_AT_ONCE, SLICE, BoundedSocket

PING = b"\x89\x80" + bytes(4)
NOTHING_MORE = b"\x00\x80" + bytes(4)
"""A fragment without content, of a message that goes on."""


class Counting:
    """An application that takes messages when it may, and says how many it had."""

    def __init__(self) -> None:
        self.may = asyncio.Event()
        self.may.set()
        self.heard: list[Any] = []
        self.ended = asyncio.Event()
        self.protocol: BoundedSocket | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.protocol = receive.__self__
        assert (await receive())["type"] == "websocket.connect"
        await send({"type": "websocket.accept"})
        while True:
            await self.may.wait()
            message = await receive()
            if message["type"] == "websocket.disconnect":
                self.ended.set()
                return
            self.heard.append(message.get("text") or message.get("bytes"))
            if message.get("text") == "end":
                await send({"type": "websocket.close", "code": 1000})


@asynccontextmanager
async def served(app: Counting) -> AsyncIterator[int]:
    """The port at which uvicorn serves `app` with our protocol."""
    config = uvicorn.Config(app, port=0, ws=BoundedSocket, lifespan="off", log_level="error")
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await task


@asynccontextmanager
async def raw(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection after its handshake."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(handshake("/"))
        await reader.readuntil(b"\r\n\r\n")
        yield reader, writer
    finally:
        writer.close()


async def test_messages_that_come_together_with_the_end_are_all_heard() -> None:
    app = Counting()
    async with served(app) as port, raw(port) as (_, writer):
        app.may.clear()
        writer.write(b"".join(frame(b"%d" % number) for number in range(500)) + frame((1000).to_bytes(2, "big"), 0x88))
        await writer.drain()
        app.may.set()
        async with asyncio.timeout(5):
            await app.ended.wait()
    assert app.heard == [str(number) for number in range(500)]


async def test_messages_that_come_before_the_connection_breaks_are_heard() -> None:
    app = Counting()
    async with served(app) as port, raw(port) as (_, writer):
        writer.write(b"".join(frame(b"%d" % number) for number in range(500)))
        await writer.drain()
        writer.transport.abort()
        async with asyncio.timeout(5):
            await app.ended.wait()
    assert app.heard == [str(number) for number in range(len(app.heard))]


async def test_what_the_application_does_not_take_is_not_parsed() -> None:
    app = Counting()
    async with served(app) as port, raw(port) as (_, writer):
        app.may.clear()
        writer.write(frame(b"first") + frame(b"x") * 20_000)
        await asyncio.sleep(0.2)
        assert app.protocol is not None
        assert app.protocol.queue.qsize() < 200
        app.may.set()
        writer.write(frame(b"end"))
        async with asyncio.timeout(10):
            await app.ended.wait()
    assert len(app.heard) == 20_002


async def test_a_large_message_is_whole_and_so_is_one_in_fragments() -> None:
    app = Counting()
    async with served(app) as port, connect(f"ws://127.0.0.1:{port}", max_size=None, compression=None) as client:
        text = "안녕" * 700_000
        await client.send(text)
        await client.send(text[start : start + 1000] for start in range(0, 100_000, 1000))
        await client.send("end")
        async with asyncio.timeout(10):
            await client.wait_closed()
    assert app.heard == [text, text[:100_000], "end"]


async def test_a_close_of_ours_is_answered_whatever_else_was_sent() -> None:
    app = Counting()
    async with served(app) as port, raw(port) as (reader, writer):
        app.may.clear()
        writer.write(frame(b"end") + frame(b"x") * 2000 + frame((1000).to_bytes(2, "big"), 0x88))
        await writer.drain()
        app.may.set()
        async with asyncio.timeout(5):
            assert (await reader.read()).startswith(b"\x88\x02\x03\xe8")


async def test_pings_are_answered_up_to_a_rate() -> None:
    app = Counting()
    async with served(app) as port, connect(f"ws://127.0.0.1:{port}") as client:
        async with asyncio.timeout(10):
            for _ in range(PINGS_AT_ONCE // 2):
                await (await client.ping())
            for _ in range(PINGS_AT_ONCE):
                await client.ping()
            await client.wait_closed()
        assert client.close_code == 1008


@pytest.mark.parametrize("flood", [PING, b"\x8a\x80" + bytes(4), NOTHING_MORE], ids=["ping", "pong", "empty fragment"])
async def test_frames_that_say_nothing_are_bounded(flood: bytes) -> None:
    app = Counting()
    async with served(app) as port, raw(port) as (reader, writer):
        if flood is NOTHING_MORE:
            writer.write(b"\x01\x81" + bytes(4) + b"a")
        writer.write(flood * 1000)
        async with asyncio.timeout(5):
            said = await reader.read()
            await app.ended.wait()
    assert b"too many pings" in said
    assert said.count(b"\x8a\x00") <= PINGS_AT_ONCE + SLICE // len(flood)
    assert app.heard == []
