"""The server's side of a Realtime socket in the test's own event loop, without a network."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.types import Message, Send
from starlette.websockets import WebSocket

from gateway.catalog import Gateway
from wires.openai.realtime.configuration import SessionConfig
from wires.openai.realtime.pump import Pump
from wires.openai.realtime.session import Opening, Session


class Line:
    """What a client says goes in by `say`, what it would hear is in `events`; `closed` is the close code."""

    def __init__(self) -> None:
        self.incoming: asyncio.Queue[Message] = asyncio.Queue()
        self.events: list[dict[str, Any]] = []
        self.said, self.done = asyncio.Event(), asyncio.Event()
        self.closed: int | None = None
        self.answer: Send = self.hear
        self.socket = WebSocket({"type": "websocket"}, self.incoming.get, self._send)

    def say(self, **event: Any) -> None:
        self.incoming.put_nowait({"type": "websocket.receive", "text": json.dumps(event)})

    async def hear(self, message: Message) -> None:
        if message["type"] == "websocket.close":
            self.closed = message["code"]
        if message["type"] != "websocket.send":
            return
        self.events.append(json.loads(message["text"]))
        self.said.set()
        if self.events[-1]["type"] == "response.done":
            self.done.set()

    async def _send(self, message: Message) -> None:
        await self.answer(message)

    def hang_up(self) -> None:
        self.incoming.put_nowait({"type": "websocket.disconnect"})


async def serve(line: Line, gateway: Gateway, lifetime: float = 3600.0, **session: Any) -> asyncio.Task[None]:
    """Begin a session on `line`, configured by `session`."""
    line.incoming.put_nowait({"type": "websocket.connect"})
    await line.socket.accept()
    config = SessionConfig().updated({"type": "realtime", **session})
    opening = Opening("default", asyncio.get_running_loop().time, 0, lifetime, config)
    return asyncio.create_task(Pump(line.socket, gateway, Session(gateway, opening)).run())
