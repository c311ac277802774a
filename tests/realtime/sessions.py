"""A Realtime client for tests: every event it reads is checked strictly against openai's own types."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter
from websockets.asyncio.client import ClientConnection, connect

from tests.running import Service

SECONDS = 30.0
Event = dict[str, Any]
_server_events: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)
SPOKEN = {"type": "message", "role": "assistant"}


def check(event: Event) -> Event:
    """Refuse what is no server event of the GA protocol."""
    _server_events.validate_python(event, strict=True)
    return event


class Realtime:
    """One session. `events` holds all that was read so far."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.events: list[Event] = []

    async def say(self, kind: str, **fields: Any) -> None:
        await self.connection.send(json.dumps({"type": kind, **fields}))

    async def read(self) -> Event:
        event = check(json.loads(await asyncio.wait_for(self.connection.recv(), SECONDS)))
        self.events.append(event)
        return event

    async def until(self, *kinds: str) -> list[Event]:
        """Read until an event of one of `kinds`; what came, that one included."""
        events = [await self.read()]
        while events[-1]["type"] not in kinds:
            events.append(await self.read())
        return events

    async def ask(self, kind: str, until: str, **fields: Any) -> Event:
        """Say something and give the event that it leads to."""
        await self.say(kind, **fields)
        return (await self.until(until))[-1]

    async def update(self, **session: Any) -> Event:
        event = await self.ask("session.update", "session.updated", session={"type": "realtime", **session})
        updated: Event = event["session"]
        return updated

    async def write(self, text: str, **fields: Any) -> None:
        """Put a user's text into the conversation."""
        item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
        await self.say("conversation.item.create", item=item, **fields)
        await self.until("conversation.item.done")

    async def respond(self, **response: Any) -> list[Event]:
        """Ask for a response and read it to its end."""
        await self.say("response.create", response=response)
        return await self.until("response.done", "error")

    async def append(self, audio: bytes) -> None:
        await self.say("input_audio_buffer.append", audio=base64.b64encode(audio).decode())


def kinds(events: Iterable[Event]) -> list[str]:
    """The types of events, repeated deltas as one."""
    found: list[str] = []
    for event in events:
        if not found or found[-1] != event["type"] or not event["type"].endswith(".delta"):
            found.append(event["type"])
    return found


def audio_of(events: Iterable[Event]) -> list[bytes]:
    """The pieces of audio in `events`."""
    return [base64.b64decode(event["delta"]) for event in events if event["type"] == "response.output_audio.delta"]


@asynccontextmanager
async def realtime(service: Service, query: str = "?model=echo", **options: Any) -> AsyncIterator[Realtime]:
    """An open session whose greeting has been read."""
    async with connect(f"{service.ws_url}/v1/realtime{query}", **options) as connection:
        session = Realtime(connection)
        await session.until("session.created")
        yield session
