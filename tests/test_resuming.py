"""aiohttp's connections go on reading by themselves, and go on after a pause; what arrives is taken in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientResponse
from aiohttp.client_proto import ResponseHandler

from adapters.http import HttpUpstream, read, read_piece
from adapters.resuming import taking
from gateway.config import ProviderRow
from tests.upstreams.byte_server import Act, Answer, ByteServer, serving

pytestmark = pytest.mark.usefixtures("few_or_a_crowd")

ROW = ProviderRow(name="up", type="openai")


class Taken(list[bytes]):
    """Takes every piece."""

    def take(self, piece: bytes) -> bool:
        self.append(piece)
        return True


async def _read(*pieces: bytes) -> bytes:
    async with ByteServer({"/x": Answer(pieces)}) as server:
        upstream = HttpUpstream(ROW, server.url)
        async with upstream.send("GET", "/x") as response:
            body = b"".join([data async for data in read(response, ROW)])
        await upstream.aclose()
    return body


async def test_a_connection_that_never_paused_is_not_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[bytes] = []
    take = ResponseHandler.data_received

    def data_received(self: ResponseHandler, data: bytes) -> None:
        received.append(data)
        take(self, data)

    monkeypatch.setattr(ResponseHandler, "data_received", data_received)
    assert await _read(b"Hello", b"world") == b"Helloworld"
    assert received
    assert all(received)


async def test_what_is_longer_than_every_buffer_arrives_whole() -> None:
    piece = bytes(range(256)) * 4096
    assert await _read(*[piece] * 8) == piece * 8


@asynccontextmanager
async def _answered(method: str) -> AsyncIterator[tuple[ClientResponse, ResponseHandler]]:
    """The head of an answer whose chunks are still to come, and the connection for which they are."""
    async with serving(Answer([b"", Act.HANG])) as server:
        upstream = HttpUpstream(ROW, server.url)
        async with asyncio.timeout(5), upstream.send(method, "/x", body=b"{}") as response:
            assert response.connection is not None
            assert response.connection.protocol is not None
            yield response, response.connection.protocol
        await upstream.aclose()


methods = pytest.mark.parametrize("method", ["POST", "PUT"])
"""A POST's answer is parsed by httptools, a PUT's by aiohttp."""


@methods
async def test_a_chunk_that_began_while_nobody_waited_is_read_as_one(method: str) -> None:
    """Its content, a read of its own, looks like chunks."""
    taken = Taken()
    async with _answered(method) as (response, connection):
        with taking(response, taken.take):
            waiting = asyncio.create_task(read_piece(response))
            await asyncio.sleep(0)
            connection.data_received(b"1\r\na\r\n")
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            connection.data_received(b"8\r\n")
            waiting = asyncio.create_task(read_piece(response))
            await asyncio.sleep(0)
            connection.data_received(b"3\r\nabc\r\n")
            connection.data_received(b"\r\n1\r\nz\r\n")
            connection.data_received(b"0\r\n\r\n")
            assert await waiting == b""
    assert b"".join(taken) == b"a3\r\nabc\r\nz"


async def test_more_chunks_than_aiohttp_takes_at_once_are_all_taken() -> None:
    taken = Taken()
    async with _answered("PUT") as (response, connection):
        with taking(response, taken.take):
            waiting = asyncio.create_task(read_piece(response))
            await asyncio.sleep(0)
            connection.data_received(b"1\r\na\r\n" * 10_000)
            assert b"".join(taken) == b"a" * 10_000
            connection.data_received(b"1\r\nz\r\n0\r\n\r\n")
            assert await waiting == b"z"


async def test_who_leaves_late_does_not_end_what_another_takes() -> None:
    """Two answers of one connection, the first of which is still read when the second one has begun."""
    taken = Taken()
    async with _answered("POST") as (response, connection):
        first = taking(response, lambda _: False)
        first.__enter__()
        with taking(response, taken.take):
            waiting = asyncio.create_task(read_piece(response))
            await asyncio.sleep(0)
            assert first._taker is not None
            # A crowd may still know the connection as the first one's.
            first._taker.receive(b"1\r\na\r\n")
            first.__exit__(None, None, None)
            connection.data_received(b"1\r\nb\r\n")
            assert taken == [b"a", b"b"]
            connection.data_received(b"0\r\n\r\n")
            assert await waiting == b""
