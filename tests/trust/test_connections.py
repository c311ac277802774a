"""What is refused before there is a request, or before its body was read: in its wire's shape, and it is the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.conftest import scripted_config
from tests.running import Service, running
from tests.sockets import socket

HEADER_BYTES, BODY_BYTES, CONNECTIONS = 4096, 10_000, 16
SECONDS = 1.0
SAYS: dict[str, Callable[[Any], str]] = {
    "/generate": lambda body: body["error"],
    "/v1/chat/completions": lambda body: body["error"]["message"],
    "/v1/predictions": lambda body: body["detail"],
    "/_plugins/_ml/models/x/_predict/stream": lambda body: body["error"]["reason"],
    "/invocations": lambda body: body["error"],
    "/endpoints/x/invocations": lambda body: body["Message"],
    "/lambda": lambda body: body["message"],
}
"""Where each wire says what is wrong."""


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A second for everything, and little of it."""
    limits = {
        "header_bytes": HEADER_BYTES,
        "header_seconds": SECONDS,
        "request_bytes": BODY_BYTES,
        "body_stall_seconds": SECONDS,
        "connections": CONNECTIONS,
        "socket_idle_seconds": SECONDS,
    }
    with running(tmp_path_factory.mktemp("bounded"), scripted_config(limits=limits)) as service:
        yield service


async def said_to(service: Service, *parts: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send the parts, each once the last was taken, and read to the end of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.05)
        async with asyncio.timeout(10):
            return parsed(await reader.read())
    finally:
        writer.close()


def parsed(answer: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    assert int(headers["content-length"]) == len(body)
    assert headers["connection"] == "close"
    return int(status.split()[1]), headers, body


def head(path: str, *lines: str) -> bytes:
    return "\r\n".join((f"POST {path} HTTP/1.1", "host: 127.0.0.1", "content-type: application/json", *lines)).encode()


async def every_wire_says(
    service: Service, status: int, sentence: str, whole: Callable[[str], Sequence[bytes]]
) -> None:
    """Each wire, asked by the parts that `whole` makes for its path, refuses with a status and a sentence."""
    answers = await asyncio.gather(*(said_to(service, *whole(path)) for path in SAYS))
    for path, (said, headers, body) in zip(SAYS, answers, strict=True):
        assert (said, headers["content-type"].partition(";")[0][-4:]) == (status, "json"), path
        assert sentence in SAYS[path](json.loads(body)), (path, body)


async def test_a_head_that_does_not_come_is_408(bounded: Service) -> None:
    await every_wire_says(bounded, 408, "head did not come within 1 s", lambda path: (head(path, "x-a: "), b"a", b"a"))


async def test_a_client_that_says_nothing_is_408(bounded: Service) -> None:
    """Its wire is not known: the body is that of `/generate`."""
    status, _, body = await said_to(bounded)
    assert status == 408
    assert SAYS["/generate"](json.loads(body))


async def test_a_head_that_is_too_large_is_431(bounded: Service) -> None:
    many = [f"x-{number}: {'a' * 100}" for number in range(50)]
    end = ("content-length: 0", "connection: close", "", "")
    sentence = f"larger than {HEADER_BYTES} bytes"
    await every_wire_says(bounded, 431, sentence, lambda path: (head(path, *many, *end),))
    await every_wire_says(bounded, 431, sentence, lambda path: (head(path, *many), b"a"))


async def test_a_body_that_stops_is_408(bounded: Service) -> None:
    def whole(path: str) -> Sequence[bytes]:
        return head(path, "content-length: 100", "connection: close", "", ""), b'{"a": '

    await every_wire_says(bounded, 408, "body came for 1 s", whole)


async def test_a_body_that_is_too_large_is_413_and_not_read(bounded: Service) -> None:
    """None of it is waited for: what says its size is refused by its head alone, and never told to continue."""
    sentence = f"larger than {BODY_BYTES} bytes"
    for more in ((), ("expect: 100-continue",)):
        lines = (f"content-length: {BODY_BYTES + 1}", "connection: close", *more, "", "")
        async with asyncio.timeout(SECONDS):
            await every_wire_says(bounded, 413, sentence, lambda path, lines=lines: (head(path, *lines),))  # type: ignore[misc]
    chunked = ("transfer-encoding: chunked", "connection: close", "", "")
    chunk = b"2711\r\n" + b" " * 10_001 + b"\r\n"
    await every_wire_says(bounded, 413, sentence, lambda path: (head(path, *chunked), chunk))


async def test_too_many_connections_are_503_and_told_when_to_come_back(bounded: Service) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(CONNECTIONS):
            client = await stack.enter_async_context(socket(bounded))
            await client.say(type="chat", model="hangs-midway", text="hi")
            await client.hear(("text",))
        status, headers, body = await said_to(bounded)
        assert (status, headers["retry-after"]) == (503, "1")
        assert f"All {CONNECTIONS} connections" in json.loads(body)["error"]
    assert bounded.get("/readyz") == "\n"


async def test_whoever_has_not_asked_yet_makes_room(bounded: Service) -> None:
    """Connections that say nothing, however many, keep nobody out."""
    async with AsyncExitStack() as stack:
        silent = []
        for _ in range(CONNECTIONS):
            reader, writer = await asyncio.open_connection("127.0.0.1", bounded.port)
            stack.callback(writer.close)
            silent.append(reader)
        for _ in range(CONNECTIONS // 2):
            assert await asyncio.to_thread(bounded.get, "/readyz") == "\n"
        async with asyncio.timeout(SECONDS / 2):
            assert parsed(await silent[0].read())[0] == 503


@pytest.mark.parametrize("path", ["/ws", "/invocations-bidirectional-stream", "/v1/realtime?model=default"])
async def test_a_socket_on_which_nothing_is_said_is_closed(bounded: Service, path: str) -> None:
    async with socket(bounded, path=path) as client, asyncio.timeout(10):
        await client.connection.wait_closed()
        assert client.connection.close_code == 4408
