"""aiohttp's connections go on reading by themselves, and go on after a pause."""

from __future__ import annotations

import pytest
from aiohttp.client_proto import ResponseHandler

from adapters.http import HttpUpstream, read
from gateway.config import ProviderRow
from tests.upstreams.byte_server import Answer, ByteServer

ROW = ProviderRow(name="up", type="openai")


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
