"""When the reader goes, what would go on at the vendor, and be billed, is cancelled as well."""

from __future__ import annotations

import asyncio

import pytest

from gateway.config import ProviderType
from gateway.errors import UpstreamTimeout
from gateway.events import TextDelta
from tests.remote.upstreams import EVENT_STREAM, Upstream, outcome, recorded, upstream
from tests.upstreams.byte_server import Act, Answer, Request

AT_ONCE = 0.1
cancelled = pytest.mark.parametrize("kind", ["replicate", "cog"])


async def _leave(remote: Upstream, when: str) -> tuple[Request, float]:
    """Read in a task until `when`, then cancel it. Gives the stream's request and the moment of leaving."""
    texts: asyncio.Queue[str] = asyncio.Queue(1000)

    async def reader() -> None:
        async with remote.opened() as stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    texts.put_nowait(event.text)

    task = asyncio.create_task(reader())
    async with asyncio.timeout(2):
        request = await remote.stream_request()
        if when == "midway":
            await texts.get()
    left = asyncio.get_running_loop().time()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(2):
        await request.gone.wait()
    return request, left


def _answer(kind: ProviderType, when: str) -> Answer:
    half = recorded(kind)[: len(recorded(kind)) // 2]
    if when == "before the head":
        return Answer(before_head=Act.HANG)
    return Answer([half, Act.HANG] if when == "midway" else [Act.HANG], headers=EVENT_STREAM)


@cancelled
@pytest.mark.parametrize("when", ["before the head", "before the first token", "midway"])
async def test_leaving_closes_the_connection_at_once_and_cancels(kind: ProviderType, when: str) -> None:
    delays: list[float] = []
    # A busy machine may hold up one attempt; a provider that waits holds up all of them.
    while not delays or (delays[-1] >= AT_ONCE and len(delays) < 3):
        async with upstream(kind, _answer(kind, when)) as remote:
            request, left = await _leave(remote, when)
            assert request.gone_at is not None
            delays.append(request.gone_at - left)
            cancel = await remote.server.wait_for("POST", "/cancel")
            assert cancel.path.startswith(request.path if kind == "cog" else "/v1/predictions/gm3q")
    assert delays[-1] < AT_ONCE


@cancelled
async def test_losing_patience_is_leaving(kind: ProviderType) -> None:
    async with upstream(kind, _answer(kind, "before the first token")) as remote:
        with pytest.raises(UpstreamTimeout):
            async with remote.opened(first_event=0.3):
                pass
        request = await remote.stream_request()
        async with asyncio.timeout(1):
            await request.gone.wait()
        await remote.server.wait_for("POST", "/cancel")


@cancelled
async def test_a_whole_stream_is_not_cancelled(kind: ProviderType) -> None:
    async with upstream(kind, Answer([recorded(kind)], headers=EVENT_STREAM)) as remote:
        await outcome(remote.events())
        await remote.provider.aclose()
        assert remote.server.received("POST", "/cancel") == []
