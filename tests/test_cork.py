"""What waits for the end of a turn of the loop is sent first, whatever else happens to its connection in that turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send
from uvicorn import Config
from uvicorn.server import ServerState

from tests.faults.bytes_said import handshake
from wires import wire_of
from wires.connections import BoundedProtocol
from wires.floods import BoundedSocket

ASK = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
TEXT = b"all of it"
EVENTS: dict[str, Callable[[BoundedProtocol], object]] = {
    "nothing": lambda connection: connection.transport.close(),
    "the server is told to stop": lambda connection: connection.shutdown(),
    "the client has ended its side": lambda connection: connection.eof_received(),
    "it was kept for long enough": lambda connection: connection.timeout_keep_alive_handler(),
    "what is no HTTP": lambda connection: connection.data_received(b"\0\r\n\r\n"),
    "a handshake that is none": lambda connection: connection.data_received(
        handshake("/").replace(b"version: 13", b"version: 12")
    ),
}


@pytest.mark.parametrize("event", EVENTS)
async def test_an_answer_is_sent_before_what_comes_in_its_turn(event: str, monkeypatch: pytest.MonkeyPatch) -> None:
    connections: list[BoundedProtocol] = []

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": TEXT})
        EVENTS[event](connections[0])

    def connected() -> Any:
        connections.append(BoundedProtocol(config, ServerState(), {}))
        return connections[0]

    monkeypatch.setattr(BoundedProtocol, "wire_of", staticmethod(wire_of), raising=False)
    config = Config(answer, ws=BoundedSocket)
    server = await asyncio.get_running_loop().create_server(connected, "127.0.0.1", 0)
    async with server, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(ASK)
        said = await reader.read()
        writer.close()
    assert said.startswith(b"HTTP/1.1 200 OK\r\n")
    assert TEXT + b"\r\n0\r\n\r\n" in said
    assert said.count(b"HTTP/1.1 400 ") == (event in ("what is no HTTP", "a handshake that is none"))
