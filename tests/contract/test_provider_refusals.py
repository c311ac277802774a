"""What a provider owes that cannot answer: a clear error of the right status before the first event, without a key."""

from __future__ import annotations

import asyncio
import logging
import socket
import traceback
from dataclasses import replace
from typing import cast

import pytest

from adapters import build
from gateway.config import Settings
from gateway.errors import GatewayError, UpstreamTimeout
from gateway.patience import Patience
from gateway.ports import ChatProvider
from tests.contract.entry import CANARY, ProviderEntry, running
from tests.contract.reading import PATIENCE, SOON, able, every, opened, outcome, with_row
from tests.contract.scenario import Refusal, Scenario
from tests.upstreams.byte_server import Act, Answer, ByteServer
from tests.upstreams.certificates import self_signed


@every
@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 429, 500, 503])
async def test_a_refusal_is_an_error_before_the_first_event(
    entry: ProviderEntry, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    said = f"No: {CANARY} at http://upstream/?key={CANARY}"
    async with entry.start(Scenario(refusals=(Refusal(status, said, {"retry-after": "7"}),))) as started:
        with pytest.raises(GatewayError) as raised:
            async with opened(started):
                pass
    error = raised.value
    assert error.status == entry.statuses[status]
    assert error.provider == started.provider.name
    assert error.retry_after == (7 if status == 429 else error.retry_after)
    shown = "".join(traceback.format_exception(error)) + repr(error) + error.message + caplog.text
    assert CANARY not in shown


@with_row
async def test_an_upstream_that_is_not_there_is_unavailable(entry: ProviderEntry) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    error = await _refused_at(entry, f"http://127.0.0.1:{port}")
    assert (error.status, error.retryable) == (503, True)


@with_row
async def test_an_unknown_host_is_unavailable(entry: ProviderEntry) -> None:
    error = await _refused_at(entry, f"http://{CANARY}:{CANARY}@no-such-host.invalid")
    assert error.status in (502, 503)


@with_row
async def test_a_certificate_that_nobody_vouches_for_is_unavailable(entry: ProviderEntry) -> None:
    async with ByteServer({}, tls=self_signed()) as server:
        error = await _refused_at(entry, server.url)
    assert (error.status, error.retryable) == (503, False)
    assert server.requests == []


async def _refused_at(entry: ProviderEntry, url: str) -> GatewayError:
    assert entry.row is not None
    provider = cast(ChatProvider, build(entry.row(url), "chat", Settings()))
    try:
        got = await outcome(running(provider, ByteServer({"*": []}), entry.model))
    finally:
        await provider.aclose()
    assert got.events == []
    assert got.error is not None
    assert CANARY not in "".join(traceback.format_exception(got.error)) + repr(got.error)
    return got.error


@able("http")
@pytest.mark.parametrize("content_type", ["text/html; charset=utf-8", "application/octet-stream"])
async def test_a_web_page_is_not_an_answer(entry: ProviderEntry, content_type: str) -> None:
    page = Answer((b"\n<!doctype html><title>Sign in</title>",), headers={"content-type": content_type})
    async with entry.start(Scenario(instead=page)) as started:
        got = await outcome(started)
    assert got.events == []
    assert got.error is not None
    assert got.error.status == 502
    assert "Sign in" not in got.error.message


@able("http")
async def test_a_compressed_stream_is_read(entry: ProviderEntry) -> None:
    scenario = Scenario(gzip=True)
    async with entry.start(scenario) as started:
        got = await outcome(started)
    assert (got.text, got.error) == (scenario.text, None)


@able("http")
async def test_an_endless_line_is_refused_before_it_fills_the_memory(entry: ProviderEntry) -> None:
    line = Answer((b"data: ", *(b"x" * 65536,) * 160, b"\n\n"))
    async with entry.start(Scenario(instead=line)) as started:
        got = await outcome(started)
    assert got.events == []
    assert got.error is not None
    assert got.error.status == 502


@every
async def test_silence_before_the_first_event_is_a_timeout(entry: ProviderEntry) -> None:
    async with entry.start(Scenario(then=Act.HANG)) as started:
        got = await outcome(started, Patience(first_event=0.05, idle=5, retries=2))
        async with asyncio.timeout(SOON):
            await started.left()
    assert got.events == []
    assert isinstance(got.error, UpstreamTimeout)


@every
async def test_silence_midway_is_a_timeout_that_keeps_the_text(entry: ProviderEntry) -> None:
    async with entry.start(Scenario(pieces_before=2, then=Act.HANG)) as started:
        got = await outcome(started, Patience(first_event=5, idle=0.05))
        async with asyncio.timeout(SOON):
            await started.left()
    assert got.text == "Hello "
    assert isinstance(got.error, UpstreamTimeout)


@every
async def test_a_retry_before_the_first_event_gives_one_clean_answer(entry: ProviderEntry) -> None:
    scenario = Scenario(refusals=tuple(Refusal(status, headers={"retry-after": "0"}) for status in entry.tried_again))
    async with entry.start(scenario) as started:
        got = await outcome(started, replace(PATIENCE, retries=2))
    assert (got.text, got.error) == (scenario.text, None)


@every
async def test_no_more_is_tried_than_configured(entry: ProviderEntry) -> None:
    scenario = Scenario(refusals=(Refusal(429, headers={"retry-after": "0"}),) * 2)
    async with entry.start(scenario) as started:
        got = await outcome(started, replace(PATIENCE, retries=1))
    assert got.events == []
    assert got.error is not None
    assert got.error.status == 429


@every
async def test_what_the_caller_must_repair_is_not_tried_again(entry: ProviderEntry) -> None:
    async with entry.start(Scenario(refusals=(Refusal(400),))) as started:
        got = await outcome(started, replace(PATIENCE, retries=3))
    assert got.error is not None
    assert got.error.status == 400


@every
async def test_the_pause_that_the_upstream_asks_for_is_kept(entry: ProviderEntry) -> None:
    loop = asyncio.get_running_loop()
    scenario = Scenario(refusals=(Refusal(429, headers={"retry-after": "0.4"}),))
    async with entry.start(scenario) as started:
        began = loop.time()
        got = await outcome(started, replace(PATIENCE, retries=1))
        waited = loop.time() - began
    assert got.text == scenario.text
    assert waited >= 0.4


@every
async def test_a_longer_pause_is_the_callers_to_keep(entry: ProviderEntry) -> None:
    scenario = Scenario(refusals=(Refusal(429, headers={"retry-after": "60"}),))
    async with entry.start(scenario) as started, asyncio.timeout(30):
        got = await outcome(started, replace(PATIENCE, retries=3))
    assert got.error is not None
    assert (got.error.status, got.error.retry_after) == (429, 60)


@every
async def test_the_whole_time_of_an_answer_is_not_bounded(entry: ProviderEntry) -> None:
    scenario = Scenario(pieces=("word ",) * 12, pause=0.04)
    loop = asyncio.get_running_loop()
    async with entry.start(scenario) as started:
        # What a first request has to load counts for its first event.
        await outcome(started)
        began = loop.time()
        got = await outcome(started, Patience(first_event=0.4, idle=0.4))
    assert (got.text, got.error) == (scenario.text, None)
    assert loop.time() - began > 0.4
