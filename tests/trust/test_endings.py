"""A client that is still sending when it is answered reads the answer, no reset; and nobody is held open for long."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress

import pytest
from starlette.types import Message
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from gateway.config import Limits
from gateway.events import Finished, FinishReason, Started, StreamEvent, TextDelta
from tests.conftest import scripted_config
from tests.faults.bytes_said import frame, handshake
from tests.running import Service, running
from wires.base import StreamResponse
from wires.openai.chat import ChunkEncoder
from wires.openai.errors import WIRE
from wires.outbox import Outbox

HEADER_BYTES, BODY_BYTES, CONNECTIONS, SECONDS = 4096, 1_000_000, 8, 1.5
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    limits = {
        "header_bytes": HEADER_BYTES,
        "header_seconds": SECONDS,
        "request_bytes": BODY_BYTES,
        "prompt_characters": BODY_BYTES,
        "connections": CONNECTIONS,
        "send_stall_seconds": 1,
    }
    with running(tmp_path_factory.mktemp("endings"), scripted_config(limits=limits)) as service:
        yield service


@contextmanager
def connected(service: Service) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", service.port), timeout=10) as client:
        yield client


def post(path: str, *lines: str) -> bytes:
    return "\r\n".join((f"POST {path} HTTP/1.1", "host: x", "content-type: application/json", *lines, "", "")).encode()


def to_the_end(client: socket.socket) -> bytes:
    return b"".join(iter(lambda: client.recv(65536), b""))


def is_ended(client: socket.socket, more: bytes, seconds: float) -> bool:
    """Whether the server has let go of a client that says `more` again and again, before so many seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            client.sendall(more)
        except OSError:
            return True
        time.sleep(0.01)
    return False


LENGTH, CHUNKS, LAST = f"content-length: {2 * BODY_BYTES}", "transfer-encoding: chunked", "connection: close"
LARGE_CHUNK = b"fffff\r\n" + b" " * 0xFFFFF + b"\r\n"
STILL_SENDING = {
    "a head that is too large": (post(CHAT, "x: " + "a" * 5000)[:-2], b"a: b\r\n", 431),
    "a head that stalls": (post(CHAT)[:-2], b"a: b\r\n", 408),
    "no HTTP": (b"\x00\r\n\r\n", b"a: b\r\n", 400),
    "a body that is said to be too large": (post(CHAT, LENGTH, LAST), b" " * 100, 413),
    "a body that is too large": (post(CHAT, CHUNKS, LAST) + LARGE_CHUNK, b"1\r\na\r\n", 413),
    "a path that is nobody's": (post("/%01", "content-length: 100000", LAST), b" " * 100, 404),
    "a socket where there is none": (handshake("/nowhere"), frame(b"{}"), 403),
    "a handshake that is none": (handshake("/ws").replace(b"version: 13", b"version: 12"), frame(b"{}"), 400),
}


@pytest.mark.parametrize("case", STILL_SENDING)
def test_whoever_is_still_sending_reads_the_answer(bounded: Service, case: str) -> None:
    start, more, status = STILL_SENDING[case]
    with connected(bounded) as client:
        client.sendall(start)
        said = client.recv(65536)
        assert not is_ended(client, more, 0.3)
        said += to_the_end(client)
        assert int(said.split()[1]) == status
        # It is let go when it has sent enough, or for long enough.
        assert is_ended(client, more, SECONDS * 4)


def test_whoever_finds_no_place_is_told_though_it_asks_at_once(bounded: Service) -> None:
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            busy = stack.enter_context(connected(bounded))
            body = json.dumps({"model": "hangs-midway", "prompt": "hi"}).encode()
            busy.sendall(post("/generate", f"content-length: {len(body)}") + body)
            assert busy.recv(65536)
        for _ in range(3):
            late = stack.enter_context(connected(bounded))
            said = late.recv(65536)
            assert not is_ended(late, b"a: b\r\n", 0.1)
            assert (said + to_the_end(late)).startswith(b"HTTP/1.1 503 ")


async def test_a_message_that_is_too_large_is_told_so(bounded: Service) -> None:
    async with connect(f"{bounded.ws_url}/ws", compression=None) as client:
        with suppress(ConnectionClosed):
            await client.send(b"a" * 30_000_000)
        async with asyncio.timeout(10):
            await client.wait_closed()
        assert client.close_code == 1009


def test_a_connection_outlives_an_answer_that_did_not_wait_for_its_body(bounded: Service) -> None:
    size = BODY_BYTES // 2
    with connected(bounded) as client:
        client.sendall(post("/%01", f"content-length: {size}"))
        said = client.recv(65536)
        client.sendall(b" " * size + b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        said += to_the_end(client)
        assert said.startswith(b"HTTP/1.1 404 ")
        assert b"HTTP/1.1 200 " in said


def test_a_socket_on_a_connection_that_was_used_before_lives_on(bounded: Service) -> None:
    with connected(bounded) as client:
        client.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
        said = b""
        while not said.endswith(b"\r\n\r\n\n"):
            said += client.recv(65536)
        client.sendall(handshake("/ws"))
        assert client.recv(65536).startswith(b"HTTP/1.1 101 ")
        client.settimeout(SECONDS + 0.5)
        with pytest.raises(TimeoutError):
            client.recv(65536)


@pytest.mark.parametrize("more", [b" ", b" " * 10_000, b"\r\n"], ids=["slowly", "fast", "line breaks"])
def test_nobody_goes_on_for_ever_after_an_answer(bounded: Service, more: bytes) -> None:
    body = "content-length: 0" if more == b"\r\n" else "content-length: 1000000000000"
    with connected(bounded) as client:
        client.sendall(post("/nowhere", body))
        assert client.recv(65536).split()[1] in (b"404", b"413")
        assert is_ended(client, more, SECONDS * 4)


def test_who_reads_nothing_of_the_end_is_let_go(bounded: Service) -> None:
    """Its stream has ended for that, and so does its connection, whatever it was not sent."""
    body = json.dumps({"model": "flood", "prompt": "hi"}).encode()
    with connected(bounded) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(post("/generate", f"content-length: {len(body)}") + body)
        port = client.getsockname()[1]

        def is_held() -> bool:
            held = bounded.workers()[0].net_connections("tcp")
            return any(connection.raddr and connection.raddr.port == port for connection in held)

        deadline = time.monotonic() + 10
        while is_held():
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_who_reads_slowly_reads_all_of_the_answer(bounded: Service) -> None:
    """It takes three times as long as one who reads nothing is waited for."""
    text = "a" * (BODY_BYTES - 1000)
    body = json.dumps({"model": "echo", "messages": [{"role": "user", "content": text}]}).encode()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(10)
        client.connect(("127.0.0.1", bounded.port))
        client.sendall(post(CHAT, f"content-length: {len(body)}", LAST) + body)
        said, began = client.recv(1024), time.monotonic()
        while piece := client.recv(16384):
            said += piece
            time.sleep(max(0.0, began + 3 * SECONDS * len(said) / BODY_BYTES - time.monotonic()))
    assert text.encode() in said
    assert time.monotonic() - began > 2 * SECONDS


PING = b": still here\n\n"


@pytest.mark.parametrize("deaf_to", [(PING, True), (b"", False)], ids=["the keep-alive", "the end"])
async def test_a_stream_ends_though_its_client_accepts_no_more(deaf_to: tuple[bytes, bool]) -> None:
    deaf = asyncio.Event()

    async def send(message: Message) -> None:
        if (message.get("body"), message.get("more_body")) == deaf_to:
            deaf.set()
            await asyncio.Event().wait()

    @asynccontextmanager
    async def stream() -> AsyncIterator[AsyncIterator[StreamEvent]]:
        async def events() -> AsyncIterator[StreamEvent]:
            yield Started("id", "m", 0)
            yield TextDelta("a")
            if deaf_to[1]:
                await deaf.wait()
            yield TextDelta("b")
            yield Finished(FinishReason.STOP, None)

        yield events()

    limits = Limits(keepalive_seconds=0.05, send_stall_seconds=0.2)
    response = StreamResponse(WIRE, stream, ChunkEncoder(include_usage=False), limits=limits, keepalive=PING)
    async with asyncio.timeout(5):
        await response({"type": "http"}, asyncio.Event().wait, send)  # type: ignore[arg-type]  # nobody asks it
    assert deaf.is_set()


async def test_a_socket_ends_though_its_client_accepts_no_more() -> None:
    async def send(_: Message) -> None:
        await asyncio.Event().wait()

    async with asyncio.timeout(5):
        await Outbox(send, 0.1).close(1000)
