"""The short way to a route: what goes there, and that it answers as the long way does."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from adapters import build
from gateway.catalog import Gateway
from gateway.config import Settings
from stores import open_store
from tests.conftest import scripted_config
from wires import create_app, wire_of
from wires.direct import DirectMiddleware

CHAT = "/v1/chat/completions"
GOOD = {"model": "default", "messages": [{"role": "user", "content": "hello"}]}
BODIES: dict[str, bytes] = {
    "whole": json.dumps(GOOD).encode(),
    "streamed": json.dumps(GOOD | {"stream": True}).encode(),
    "no JSON": b'{"model": ',
    "no object": b"[1, 2]",
    "empty": b"",
    "not UTF-8": b'{"model": "\xff"}',
    "too deep": b"[" * 100_000,
    "a field missing": b'{"model": "default"}',
    "a wrong type": json.dumps(GOOD | {"temperature": "warm"}).encode(),
    "an unknown model": json.dumps(GOOD | {"model": "nobody"}).encode(),
    "what is not supported": json.dumps(GOOD | {"n": 3}).encode(),
    "half a character": b'{"model": "default", "messages": [{"role": "user", "content": "\\ud83d"}]}',
}
VARYING = ("id", "created")


class LongWay:
    """The application behind, which counts who comes this way."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.reached = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.reached += 1
        await self.app(scope, receive, send)


@asynccontextmanager
async def both_ways(folder: Path) -> AsyncIterator[tuple[httpx.AsyncClient, httpx.AsyncClient, LongWay]]:
    """A client of the long way, one of the short way, and what the short way leaves to the long one."""
    store = open_store(f"sqlite:///{folder / 'polywire.db'}")
    app = create_app(Gateway(Settings(**scripted_config(grpc_port=0)), build, store), store)
    rest = LongWay(app)
    short = DirectMiddleware(rest, app, wire_of)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as slow,
        httpx.AsyncClient(transport=httpx.ASGITransport(short), base_url="http://localhost") as quick,
    ):
        yield slow, quick, rest


def told(answer: httpx.Response) -> Any:
    """The answer without what differs from one request to the next."""
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
    values = [json.loads(line) for line in lines if line.startswith("{")]
    fields = [{name: value for name, value in found.items() if name not in VARYING} for found in values]
    return answer.status_code, answer.headers["content-type"], fields


@pytest.mark.parametrize("kind", BODIES)
async def test_both_ways_answer_alike(kind: str, tmp_path: Path) -> None:
    async with both_ways(tmp_path) as (slow, quick, _):
        headers = {"content-type": "application/json"}
        long = await slow.post(CHAT, content=BODIES[kind], headers=headers)
        assert told(await quick.post(CHAT, content=BODIES[kind], headers=headers)) == told(long)


async def test_only_what_is_plain_sailing_goes_the_short_way(tmp_path: Path) -> None:
    async with both_ways(tmp_path) as (_, quick, rest):
        await quick.post(CHAT, json=GOOD)
        assert rest.reached == 0
        for request in (
            quick.build_request("POST", CHAT, content=b"{"),
            quick.build_request("POST", CHAT, content=BODIES["whole"], headers={"content-type": "text/plain"}),
            quick.build_request("GET", "/v1/models"),
        ):
            before = rest.reached
            await quick.send(request)
            assert rest.reached == before + 1
