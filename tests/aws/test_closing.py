"""Leaving: the upstream's socket closes at once, nothing is left behind, and open streams cost no thread."""

from __future__ import annotations

import asyncio
import resource
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, aclosing
from typing import Any

import pytest

from gateway.config import ProviderType
from tests.aws.account import BODIES, KINDS, answer, at, events, read_all
from tests.upstreams.byte_server import serving

each = pytest.mark.parametrize("kind", KINDS)


@each
async def test_a_stream_read_to_its_end_gives_its_connection_to_the_next(kind: ProviderType) -> None:
    async with serving(answer(kind, *BODIES[kind])) as server, at(server, kind) as adapter:
        for _ in range(3):
            await read_all(events(adapter))
    assert server.accepted == 1


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_descriptors")
async def test_five_hundred_open_streams_need_no_threads() -> None:
    last = asyncio.Event()
    *most, end = BODIES["bedrock"]
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(answer("bedrock", *most, last, end)))
        bedrock = await stack.enter_async_context(at(server, "bedrock"))
        await read_one(bedrock)
        before = set(threading.enumerate())
        sources = [await stack.enter_async_context(aclosing(events(bedrock))) for _ in range(500)]
        await asyncio.gather(*map(anext, sources))
        assert len(server.connections) >= 500
        assert set(threading.enumerate()) <= before
        last.set()
        ends = await asyncio.gather(*map(read_all, sources))
    assert all(error is None for _, error in ends)


async def read_one(adapter: Any) -> None:
    async with aclosing(events(adapter)) as source:
        await anext(source)


async def test_more_streams_than_connections_wait_their_turn() -> None:
    """The 3rd of two connections starts when one is free."""
    async with (
        serving(answer("bedrock", *BODIES["bedrock"])) as server,
        at(server, "bedrock", connections=2) as adapter,
    ):
        ends = await asyncio.gather(*(read_all(events(adapter)) for _ in range(6)))
    assert all(error is None for _, error in ends)
    assert server.accepted <= 2
