"""A POST that goes past aiohttp's session: what is plain and what is not arrive alike, and connections are kept."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import TCPConnector
from aiohttp.client_proto import ResponseHandler

from adapters.answers import AnswerParser
from adapters.http import HttpUpstream, read, read_whole
from gateway.config import ProviderRow
from gateway.errors import GatewayError, Truncated, UpstreamError, UpstreamUnavailable
from tests.upstreams.byte_server import Act, Answer, ByteServer, Framing, serving

ROW = ProviderRow(name="up", type="openai")
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
LONG = b"HTTP/1.1 200 OK\r\nx-long: " + b"x" * 200_000 + b"\r\ncontent-length: 2\r\n\r\nHi"


@asynccontextmanager
async def _saying(data: bytes) -> AsyncIterator[HttpUpstream]:
    """A server that answers the first request of each connection with `data` and then closes it."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n{}")
        writer.write(data)
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    upstream = HttpUpstream(ROW, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    async with server:
        try:
            yield upstream
        finally:
            await upstream.aclose()


async def _post(upstream: HttpUpstream, body: bytes = b"{}") -> bytes:
    async with upstream.send("POST", "/x", body=body) as response:
        return await read_whole(response, ROW)


@pytest.mark.parametrize(
    ("said", "body"),
    [
        (HEAD + b"content-length: 5\r\n\r\nHello", b"Hello"),
        (HEAD + b"content-length: 0\r\n\r\n", b""),
        (HEAD + b"\r\nHello", b"Hello"),
        (b"HTTP/1.0 200 OK\r\n\r\nHello", b"Hello"),
        (CHUNKED + b"3\r\nHel\r\n2;x=y\r\nlo\r\n0\r\n\r\n", b"Hello"),
        (CHUNKED + b"5 \r\nHello\r\n0\r\ntrailer: 1\r\n\r\n", b"Hello"),
        (CHUNKED.replace(b"\r\n", b"\n") + b"5\r\nHello\r\n0\r\n\r\n", b"Hello"),
        (b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + CHUNKED + b"5\r\nHello\r\n0\r\n\r\n", b"Hello"),
        (HEAD + b"content-encoding: gzip\r\n\r\n" + gzip.compress(b"Hello", mtime=0), b"Hello"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (HEAD + b"content-length: 5\r\n\r\nHelloHTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nbad", b"Hello"),
    ],
)
async def test_every_framing_arrives_whole(said: bytes, body: bytes) -> None:
    async with _saying(said) as upstream:
        assert await _post(upstream) == body


@pytest.mark.parametrize(
    ("said", "failure"),
    [
        (b"", UpstreamUnavailable),
        (HEAD, UpstreamUnavailable),
        (b"SSH-2.0-x\r\n", UpstreamError),
        (HEAD + b"x: a\0b\r\ncontent-length: 2\r\n\r\nHi", UpstreamError),
        (HEAD + b"content-length: 5\r\n\r\nHell", Truncated),
        (CHUNKED + b"5\r\nHello\r\n", Truncated),
        (CHUNKED + b"5\r\nHello\r\nworld", GatewayError),
        (LONG, UpstreamError),
    ],
)
async def test_what_is_no_whole_answer_fails(said: bytes, failure: type[GatewayError]) -> None:
    async with _saying(said) as upstream:
        with pytest.raises(failure):
            await _post(upstream)


@pytest.mark.parametrize("framing", Framing)
@pytest.mark.parametrize("cut", [1, 7, None])
async def test_every_cut_arrives_whole(framing: Framing, cut: int | None) -> None:
    async with serving(Answer((b"Hello, ", b"world"), framing=framing, cut=cut)) as server:
        upstream = HttpUpstream(ROW, server.url)
        assert await _post(upstream) == b"Hello, world"
        await upstream.aclose()


async def test_a_body_that_breaks_off_in_a_later_read_is_told_after_what_had_arrived() -> None:
    went_on = asyncio.Event()
    async with serving(Answer((b"Hel", went_on, b"lo", Act.DROP))) as server:
        upstream = HttpUpstream(ROW, server.url)
        async with upstream.send("POST", "/x", body=b"{}") as response:
            pieces = read(response, ROW)
            assert await anext(pieces) == b"Hel"
            went_on.set()
            assert await anext(pieces) == b"lo"
            with pytest.raises(Truncated):
                await anext(pieces)
        await upstream.aclose()


async def test_a_reader_that_takes_nothing_holds_its_provider_up() -> None:
    piece = bytes(256 * 1024)
    async with serving(Answer([piece] * 256)) as server:
        upstream = HttpUpstream(ROW, server.url)
        async with upstream.send("POST", "/x", body=b"{}") as response:
            pieces = read(response, ROW)
            size = len(await anext(pieces))
            await server.requests[0].written.wait()
            assert not server.requests[0].answered.is_set()
            async for data in pieces:
                size += len(data)
        assert size == len(piece) * 256
        await upstream.aclose()


async def test_connections_are_kept_and_shared_with_other_methods() -> None:
    async with serving(Answer((b"Hello",))) as server:
        upstream = HttpUpstream(ROW, server.url)
        for method, body in (("POST", b"{}"), ("GET", None), ("POST", b"{}"), ("POST", b"x" * 200_000)):
            async with upstream.send(method, "/x", body=body) as response:
                assert await read_whole(response, ROW) == b"Hello"
        assert server.accepted == 1
        await upstream.aclose()


async def test_leaving_before_the_end_closes_the_connection() -> None:
    async with serving(Answer((b"Hello", Act.HANG))) as server:
        upstream = HttpUpstream(ROW, server.url)
        async with upstream.send("POST", "/x", body=b"{}") as response:
            assert await anext(read(response, ROW)) == b"Hello"
        await server.without_connections()
        await upstream.aclose()


async def test_bytes_that_nobody_asked_for_close_a_kept_connection() -> None:
    async with ByteServer({"*": Answer((b"Hello",))}) as server:
        upstream = HttpUpstream(ROW, server.url)
        assert await _post(upstream) == b"Hello"
        (connection,) = server.connections
        connection._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nbad")
        await server.without_connections()
        assert await _post(upstream) == b"Hello"
        await upstream.aclose()


@pytest.mark.parametrize("first", ["POST", "GET"])
@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_such_bytes_are_never_the_answer_to_the_next_request(first: str, method: str) -> None:
    """Also after an answer that aiohttp has parsed: to a GET, or with a head in two reads."""
    bodies = {"POST": b"{}", "GET": None}
    unasked, came = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nbad", asyncio.Event()
    async with ByteServer({"*": Answer((b"Hello",), cut=20)}) as server:
        upstream = HttpUpstream(ROW, server.url)
        async with upstream.send(first, "/x", body=bodies[first]) as response:
            protocol = response.content._protocol
            assert await read_whole(response, ROW) == b"Hello"
        (connection,) = server.connections
        receive = protocol.data_received

        def data_received(data: bytes) -> None:
            receive(data)
            came.set()

        vars(protocol)["data_received"] = data_received
        connection._transport.write(unasked)
        async with asyncio.timeout(5):
            await came.wait()
        async with upstream.send(method, "/x", body=bodies[method]) as response:
            assert await read_whole(response, ROW) == b"Hello"
        assert server.accepted == 2
        await upstream.aclose()


@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_a_server_that_refuses_before_it_is_asked_is_heard(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    create, receive = TCPConnector._create_connection, ResponseHandler.data_received
    received = asyncio.Event()

    def data_received(self: ResponseHandler, data: bytes) -> None:
        receive(self, data)
        received.set()

    async def connected(self: TCPConnector, *asked: Any) -> ResponseHandler:
        protocol = await create(self, *asked)
        await received.wait()
        return protocol

    monkeypatch.setattr(ResponseHandler, "data_received", data_received)
    monkeypatch.setattr(TCPConnector, "_create_connection", connected)

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 503 Busy\r\nretry-after: 3\r\ncontent-length: 0\r\n\r\n")
        await reader.read()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server, asyncio.timeout(5):
        upstream = HttpUpstream(ROW, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        with pytest.raises(UpstreamUnavailable) as raised:
            async with upstream.send(method, "/x", body=b"{}"):
                pass
        assert raised.value.retry_after == 3
        await upstream.aclose()


async def test_the_plain_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[bytes] = []
    feed = AnswerParser.feed_data

    def feed_data(self: AnswerParser, data: bytes) -> object:
        fed.append(data)
        return feed(self, data)

    monkeypatch.setattr(AnswerParser, "feed_data", feed_data)
    async with serving(Answer((b"Hel", b"lo"))) as server:
        upstream = HttpUpstream(ROW, server.url)
        assert await _post(upstream) == b"Hello"
        await upstream.aclose()
    assert b"".join(fed).endswith(b"0\r\n\r\n")


async def test_a_header_that_cannot_be_sent_is_refused_without_its_text() -> None:
    async with serving(Answer((b"Hello",))) as server:
        upstream = HttpUpstream(ROW, server.url, {"authorization": "Bearer secret\r\nx: y"})
        with pytest.raises(UpstreamError, match="check its base_url and its key") as raised:
            await _post(upstream)
        assert "secret" not in str(raised.value)
        assert server.requests == []
        await upstream.aclose()


async def test_credentials_in_the_url_are_sent() -> None:
    async with serving(Answer((b"Hello",))) as server:
        upstream = HttpUpstream(ROW, server.url.replace("//", "//me:secret@"))
        assert await _post(upstream) == b"Hello"
        assert server.requests[0].headers["authorization"] == "Basic bWU6c2VjcmV0"
        await upstream.aclose()


@pytest.mark.parametrize(
    ("read", "between"),
    [
        (b"5\r\nHello\r\n", True),
        (b"5\r\nHello\r\n1", True),
        (b"5\r\nHello\r\n1\r\n", False),
        (b"5\r\nHello\r", False),
        (b"5\r\nHel", False),
    ],
)
async def test_a_parser_knows_whether_it_stands_between_two_chunks(read: bytes, between: bool) -> None:
    loop = asyncio.get_running_loop()
    parser = AnswerParser(ResponseHandler(loop), loop, 65536)
    parser.feed_data(CHUNKED)
    parser.feed_data(read)
    assert parser.between_chunks is between
