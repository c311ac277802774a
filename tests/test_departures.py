"""A request that is given up for two reasons at once ends as for one: nobody else cancelled it, so it is no fault."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from starlette.types import Message, Receive, Scope, Send

from gateway.config import Limits
from gateway.stopping import Stage, Stopping
from wires import wire_of
from wires.connections import DEPARTURES
from wires.middleware import DisconnectMiddleware


class Exchange:
    """A request whose application closes slowly; its client can leave."""

    def __init__(self) -> None:
        self.stopping = Stopping()
        self._begun, self._closing = asyncio.Event(), asyncio.Event()
        self.statuses: list[int] = []
        self._departures: dict[object, Callable[[], None]] = {}
        middleware = DisconnectMiddleware(self._app, wire_of, Limits(), self.stopping)
        scope = {"type": "http", "path": "/generate", "method": "POST", "headers": [], DEPARTURES: self._departures}
        self.task = asyncio.create_task(middleware(scope, self._receive, self._send))

    async def leave(self) -> None:
        await self._begun.wait()
        for leave in list(self._departures.values()):
            leave()
        await self._closing.wait()

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._begun.set()
            await asyncio.Event().wait()
        finally:
            self._closing.set()
            await asyncio.Event().wait()

    async def _receive(self) -> Message:
        return {"type": "http.request", "body": b""}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.statuses.append(message["status"])


async def test_who_left_before_a_stop_broke_off_what_ran() -> None:
    exchange = Exchange()
    async with asyncio.timeout(5):
        await exchange.leave()
        exchange.stopping.reach(Stage.ABORTING)
        await exchange.task
    assert exchange.statuses == [499]


async def test_what_somebody_else_cancels_is_cancelled() -> None:
    exchange = Exchange()
    async with asyncio.timeout(5):
        await exchange.leave()
        exchange.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await exchange.task
    assert exchange.statuses == []
