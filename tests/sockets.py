"""A small client of `/ws` for tests: sends messages, reads one turn to its end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from tests.running import Service

SECONDS = 10.0
LAST = ("finished", "error", "warning", "pong", "configured")


@dataclass
class Heard:
    """What came until a turn's end: messages in order, and the audio after each `audio` header."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    audio: bytes = b""
    frames: list[bytes] = field(default_factory=list)

    @property
    def kinds(self) -> list[str]:
        return [str(message["type"]) for message in self.messages]

    @property
    def text(self) -> str:
        return "".join(message["text"] for message in self.messages if message["type"] == "text")

    @property
    def last(self) -> dict[str, Any]:
        return self.messages[-1]


class Client:
    """One socket."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def say(self, **message: Any) -> None:
        await self.connection.send(json.dumps(message))

    async def ask(self, **message: Any) -> Heard:
        """Send a message and read to the end of what it caused."""
        await self.say(**message)
        return await self.hear()

    async def hear(self, until: tuple[str, ...] = LAST) -> Heard:
        """Read until a message of one of the types in `until`."""
        heard = Heard()
        while not heard.messages or heard.kinds[-1] not in until:
            await self.hear_one(heard)
        return heard

    async def hear_one(self, heard: Heard) -> None:
        received = await asyncio.wait_for(self.connection.recv(), SECONDS)
        if isinstance(received, bytes):
            heard.frames.append(received)
            heard.audio += received
        else:
            heard.messages.append(json.loads(received))

    async def nothing(self, seconds: float = 0.3) -> bool:
        """Whether nothing comes for a while."""
        try:
            await asyncio.wait_for(self.connection.recv(), seconds)
        except TimeoutError:
            return True
        return False


@asynccontextmanager
async def socket(service: Service, query: str = "", *, path: str = "/ws", **options: Any) -> AsyncIterator[Client]:
    """An open `/ws` socket."""
    async with connect(f"{service.ws_url}{path}{query}", **options) as connection:
        yield Client(connection)
