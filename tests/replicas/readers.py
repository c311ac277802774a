"""Readers of predictions that come back with their last event's id, to whichever replica answers."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any

import httpx

from gateway.sse import SseDecoder

GIVE_UP_SECONDS = 40.0


@dataclass
class Reader:
    """One reader's whole experience of the stream at `url`."""

    url: str
    events: list[tuple[str, str, str]] = field(default_factory=list)
    connections: int = 0
    ended_at: float = 0.0

    @property
    def text(self) -> str:
        return "".join(data for event, data, _ in self.events if event == "output")

    @property
    def finished(self) -> bool:
        """Whether its end says that the text is whole."""
        return bool(self.events) and self.events[-1][:2] == ("done", "{}")

    @property
    def failed(self) -> bool:
        """Whether its end is an error with a sentence."""
        if [event for event, _, _ in self.events[-2:]] != ["error", "done"]:
            return False
        return bool(json.loads(self.events[-2][1])["detail"]) and json.loads(self.events[-1][1]) == {"reason": "error"}

    @property
    def numbers(self) -> list[int]:
        """The events' numbers as their ids tell."""
        return [int(id.partition(":")[2]) for _, _, id in self.events]

    async def read(self, client: httpx.AsyncClient) -> Reader:
        """Read to the end; a connection that ends before it is followed by another one."""
        give_up = time.monotonic() + GIVE_UP_SECONDS
        while time.monotonic() < give_up:
            self.connections += 1
            try:
                if await self._connect(client):
                    self.ended_at = time.monotonic()
                    return self
            except httpx.HTTPError:
                pass
            await asyncio.sleep(0.05)
        raise AssertionError(f"no end after {self.events[-1:]}")

    async def _connect(self, client: httpx.AsyncClient) -> bool:
        headers = {"last-event-id": self.events[-1][2]} if self.events else {}
        decoder = SseDecoder()
        async with client.stream("GET", self.url, headers=headers) as answer:
            if answer.status_code != 200:
                return False
            async for piece in answer.aiter_raw():
                for event in decoder.feed(piece):
                    self.events.append((event.event or "", event.text, event.id or ""))
                    if event.event == "done":
                        return True
        return False


def new_client() -> httpx.AsyncClient:
    """A client that takes a new connection for each reader."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    return httpx.AsyncClient(timeout=httpx.Timeout(60), limits=limits, verify=False)  # noqa: S501 - plain HTTP


async def create(client: httpx.AsyncClient, url: str, model: str) -> dict[str, Any]:
    """A prediction of `test/model`."""
    answer = await client.post(f"{url}/v1/models/test/{model}/predictions", json={"input": {"prompt": "hi"}})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made
