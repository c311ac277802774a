"""Bodies that break off where aiohttp would see an end, or nothing at all: their readers are told, and at once."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from pathlib import Path

import pytest
import uvloop
from aiohttp import ClientResponse

from adapters.http import HttpUpstream, read
from gateway.config import ProviderRow
from gateway.errors import Truncated
from tests.upstreams.byte_server import Act, Answer, ByteServer, Framing, serving
from tests.upstreams.certificates import self_signed

pytestmark = pytest.mark.usefixtures("few_or_a_crowd")

SOON = 5
CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n"

methods = pytest.mark.parametrize("method", ["POST", "PUT"])
"""A POST goes past aiohttp's session, a PUT does not."""


async def hears_of_the_break(response: ClientResponse, row: ProviderRow, went_on: asyncio.Event) -> None:
    """Read what came before the break, which comes once `went_on` is set, and then be told of it."""
    pieces = read(response, row)
    assert await anext(pieces) == b"Hello"
    went_on.set()
    with pytest.raises(Truncated):
        await anext(pieces)


@methods
async def test_a_reset_is_not_the_end_of_a_body_without_a_length(method: str) -> None:
    went_on = asyncio.Event()
    async with serving(Answer([b"Hello", went_on, Act.RESET], framing=Framing.CLOSE)) as server:
        upstream = HttpUpstream(ProviderRow(name="up", type="openai"), server.url)
        async with asyncio.timeout(SOON), upstream.send(method, "/x", body=b"{}") as response:
            await hears_of_the_break(response, upstream.row, went_on)
        await upstream.aclose()


@pytest.mark.parametrize("alert", [True, False])
def test_over_tls_such_a_body_ends_with_an_alert_only(tmp_path: Path, alert: bool) -> None:
    """On uvloop, which runs the service: asyncio's own event loop cannot tell."""
    uvloop.run(_read_over_tls(tmp_path / "ca.pem", alert))


async def _read_over_tls(file: Path, alert: bool) -> None:
    went_on = asyncio.Event()
    answer = Answer([b"Hello", went_on], framing=Framing.CLOSE)
    async with asyncio.timeout(SOON), ByteServer({"*": answer}, tls=self_signed(file)) as server:
        upstream = HttpUpstream(ProviderRow(name="up", type="openai", ca_file=file), server.url)
        async with upstream.send("POST", "/x", body=b"{}") as response:
            pieces = read(response, upstream.row)
            assert await anext(pieces) == b"Hello"
            if alert:
                went_on.set()
                assert [piece async for piece in pieces] == []
            else:
                (connection,) = server.connections
                _end_without_alert(connection._transport)
                with pytest.raises(Truncated):
                    await anext(pieces)
        await upstream.aclose()


def _end_without_alert(transport: asyncio.Transport) -> None:
    with socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())) as same:
        same.shutdown(socket.SHUT_RDWR)


@methods
@pytest.mark.parametrize("head", [[CHUNKED], [CHUNKED[:9], CHUNKED[9:]]], ids=["at once", "in two"])
@pytest.mark.parametrize("then", [b"world", b"0\r\nx: " + b"y" * 100_000], ids=["no chunk", "an endless trailer"])
async def test_what_cannot_be_parsed_is_told_at_once_whoever_parses_it(
    method: str, head: list[bytes], then: bytes
) -> None:
    went_on, left = asyncio.Event(), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n{}")
        for step in (*head, b"5\r\nHello\r\n"):
            writer.write(step)
            await asyncio.sleep(0.01)
        await went_on.wait()
        writer.write(then)
        # The server does not close: it is the client that has to.
        with suppress(ConnectionError):
            await reader.read()
        writer.close()
        left.set()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server, asyncio.timeout(SOON):
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        upstream = HttpUpstream(ProviderRow(name="up", type="openai"), url)
        async with upstream.send(method, "/x", body=b"{}") as response:
            await hears_of_the_break(response, upstream.row, went_on)
            await left.wait()
        await upstream.aclose()
