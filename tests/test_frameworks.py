"""What a request leaves behind in the frameworks: nothing."""

from __future__ import annotations

import asyncio

from bentoml._internal.server.http.traffic import TimeoutMiddleware
from starlette.types import Message, Receive, Scope, Send

from wires.frameworks import tune


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
