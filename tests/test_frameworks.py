"""What a request leaves behind in the frameworks: nothing."""

from __future__ import annotations

import asyncio
import signal
import socket

import pytest
import uvicorn
from bentoml._internal.server.http.traffic import TimeoutMiddleware
from starlette.types import Message, Receive, Scope, Send

from wires.frameworks import LISTENERS, TICK_SECONDS, _listen, tune


async def test_a_request_leaves_no_timer_behind() -> None:
    tune()
    answered: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive() -> Message:
        raise AssertionError("nothing is read")

    async def send(message: Message) -> None:
        answered.append(message)

    loop = asyncio.get_running_loop()
    before = len(getattr(loop, "_scheduled", ()))
    await TimeoutMiddleware(app, timeout=60)({"type": "http"}, receive, send)
    assert [message["status"] for message in answered] == [200]
    assert len(getattr(loop, "_scheduled", ())) == before


async def test_no_listener_waits_within_accept(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that did would hold up its worker's loop whenever another worker was quicker."""
    listening: list[socket.socket] = []

    async def startup(self: uvicorn.Server, sockets: list[socket.socket]) -> None:
        listening.extend(sockets)

    monkeypatch.setattr("wires.frameworks._startup", startup)
    with socket.create_server(("127.0.0.1", 0)) as given:
        await _listen(uvicorn.Server(uvicorn.Config(_listen)), [given])
        assert len(listening) == LISTENERS
        for listener in listening:
            assert not listener.getblocking()
            with pytest.raises(BlockingIOError):
                listener.accept()
        for copy in listening[1:]:
            copy.close()


async def test_a_server_that_is_told_to_exit_does_not_wait_for_its_next_tick() -> None:
    tune()
    ticks = 0
    ticked = asyncio.Event()
    server = uvicorn.Server(uvicorn.Config(_listen, lifespan="off"))
    tick = server.on_tick

    async def on_tick(counter: int) -> bool:
        nonlocal ticks
        ticks += 1
        ticked.set()
        return await tick(counter)

    server.on_tick = on_tick  # type: ignore[method-assign]  # counts
    running = asyncio.create_task(server.main_loop())
    async with asyncio.timeout(TICK_SECONDS / 2):
        await ticked.wait()
        server.handle_exit(signal.SIGTERM, None)
        await running
    assert ticks == 2
    assert server.server_state.default_headers[0][0] == b"date"
