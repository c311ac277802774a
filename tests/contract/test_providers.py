"""What every chat provider owes: the text whole, one true ending, a clear refusal, and its upstream let go at once."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from adapters import build
from gateway.completion import collect
from gateway.config import Settings
from gateway.errors import GatewayError, UpstreamTimeout
from gateway.events import Failed, Finished, FinishReason, StreamEvent, TextDelta
from gateway.ports import ChatProvider
from gateway.request import ChatRequest, Role, text_message
from gateway.streams import EventStream, Patience, open_stream
from gateway.telemetry import Meter
from tests.contract.entry import CANARY, CANARY_ENV, MODEL, ProviderEntry, Running
from tests.contract.providers import ENTRIES
from tests.contract.scenario import Call, Refusal, Scenario
from tests.upstreams.certificates import self_signed
from tests.upstreams.fake_server import Act, Answer, FakeServer, Framing

REQUEST = ChatRequest(MODEL, (text_message(Role.USER, "Say hello."),))
PATIENCE = Patience(first_event=5, idle=5)
SOON = 0.1
"""Seconds in which an upstream must be let go."""

every = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)


def able(*words: str) -> pytest.MarkDecorator:
    """The entries that can show all of `words`."""
    chosen = [entry for entry in ENTRIES if entry.able.issuperset(words)]
    return pytest.mark.parametrize("entry", chosen, ids=lambda entry: entry.name)


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CANARY_ENV, CANARY)


@asynccontextmanager
async def opened(provider: ChatProvider, patience: Patience = PATIENCE) -> AsyncIterator[EventStream[Any]]:
    meter = Meter("test", MODEL, provider.name)
    async with open_stream(lambda: provider.stream(REQUEST), model=MODEL, meter=meter, patience=patience) as events:
        yield events


@dataclass
class Outcome:
    """What a reader got."""

    events: list[StreamEvent] = field(default_factory=list)
    error: GatewayError | None = None

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))

    @property
    def finished(self) -> Finished | None:
        return next((event for event in self.events if isinstance(event, Finished)), None)


async def outcome(provider: ChatProvider, patience: Patience = PATIENCE) -> Outcome:
    """Everything that a reader gets, the refusal of `open_stream` included."""
    got = Outcome()
    try:
        async with opened(provider, patience) as events:
            async for event in events:
                got.events.append(event)
    except GatewayError as error:
        got.error = error
    if got.events and isinstance(got.events[-1], Failed):
        got.error = got.events[-1].error
    return got


@every
async def test_text_is_whole_however_the_bytes_are_cut(entry: ProviderEntry) -> None:
    scenario = Scenario(cut=1)
    async with entry.start(scenario) as running:
        got = await outcome(running.provider)
    assert (got.text, got.error) == (scenario.text, None)
    assert scenario.text == "Hello 안녕하세요 👋🏽"


@every
async def test_pieces_arrive_one_by_one(entry: ProviderEntry) -> None:
    scenario = Scenario(pause=0.02)
    async with entry.start(scenario) as running:
        got = await outcome(running.provider)
    assert [event.text for event in got.events if isinstance(event, TextDelta)] == list(scenario.pieces)


@able("usage")
async def test_usage_is_counted(entry: ProviderEntry) -> None:
    scenario = Scenario()
    async with entry.start(scenario) as running, opened(running.provider) as events:
        whole = await collect(events)
    assert whole.usage is not None
    assert (whole.usage.input_tokens, whole.usage.output_tokens) == (9, 3)


@pytest.mark.parametrize(
    ("entry", "reason"), [(entry, reason) for entry in ENTRIES for reason in sorted(entry.reasons)]
)
async def test_the_reason_of_the_ending_is_told(entry: ProviderEntry, reason: FinishReason) -> None:
    async with entry.start(Scenario(reason=reason)) as running:
        got = await outcome(running.provider)
    assert got.finished is not None
    assert got.finished.reason is reason


@able("reasoning")
async def test_reasoning_is_apart_from_the_text(entry: ProviderEntry) -> None:
    scenario = Scenario(reasoning=("I ", "think."))
    async with entry.start(scenario) as running, opened(running.provider) as events:
        whole = await collect(events)
    assert (whole.reasoning, whole.text) == ("I think.", scenario.text)


@able("tools")
async def test_two_tool_calls_stay_two(entry: ProviderEntry) -> None:
    calls = (Call("call_1", "get_weather", '{"city":"서울"}'), Call("call_2", "get_time", '{"zone":"KST"}'))
    scenario = Scenario(pieces=(), calls=calls, reason=FinishReason.TOOL_CALLS, cut=1)
    async with entry.start(scenario) as running, opened(running.provider) as events:
        whole = await collect(events)
    assert [(made.call_id, made.name, made.arguments) for made in whole.tool_calls] == [
        (call.call_id, call.name, call.arguments) for call in calls
    ]
    assert whole.reason is FinishReason.TOOL_CALLS


@able("http")
@pytest.mark.parametrize("framing", list(Framing))
async def test_a_cut_after_any_byte_is_a_failure_that_keeps_the_text(entry: ProviderEntry, framing: Framing) -> None:
    scenario = Scenario(framing=framing)
    async with entry.start(scenario) as running:
        assert running.server is not None
        whole = await outcome(running.provider)
        assert whole.text == scenario.text
        path, answer = running.server.longest_answer()
        successes = []
        for at in range(len(answer.body)):
            running.server.routes[path] = replace(answer, truncated_at=at)
            got = await outcome(running.provider)
            assert scenario.text.startswith(got.text), f"cut after {at} bytes"
            if got.error is None:
                successes.append((at, got.text))
    if framing is not Framing.CLOSE:
        assert successes == []
    # Where the end of the connection is the end of the body, an answer whose ending was told already is whole.
    assert all(text == scenario.text for _, text in successes)
    assert [at for at, _ in successes] == list(range(len(answer.body)))[len(answer.body) - len(successes) :]


@every
@pytest.mark.parametrize("then", [Act.DROP, Act.RESET, b""], ids=["drop", "reset", "error"])
async def test_a_failure_midway_keeps_the_text_and_is_no_success(entry: ProviderEntry, then: Act | bytes) -> None:
    scenario = Scenario(pieces_before=2, then=then)
    async with entry.start(scenario) as running:
        got = await outcome(running.provider, replace(PATIENCE, retries=3))
        if running.server is not None:
            assert len({request.path for request in running.server.requests}) == len(running.server.requests)
    assert got.text == "Hello "
    assert isinstance(got.events[-1], Failed)
    assert got.events[-1].error.status == 502


@every
async def test_leaving_before_the_first_token_lets_the_upstream_go(entry: ProviderEntry) -> None:
    async with entry.start(Scenario(then=Act.HANG)) as running:
        reading = asyncio.create_task(outcome(running.provider))
        await _begun(running)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        async with asyncio.timeout(SOON):
            await running.left()


async def _begun(running: Running) -> None:
    """Wait until the upstream has the request; one without a server has it in the next turn of the loop."""
    if running.server is None:
        await asyncio.sleep(0)
    else:
        await running.server.asked.wait()


@every
@pytest.mark.parametrize("pause", [0, 0.02], ids=["while it is silent", "while it speaks"])
async def test_leaving_midway_lets_the_upstream_go(entry: ProviderEntry, pause: float) -> None:
    speaking = Scenario(pieces=("word ",) * 200, pause=pause)
    async with entry.start(speaking if pause else replace(speaking, pieces_before=3, then=Act.HANG)) as running:
        async with opened(running.provider) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    break
        async with asyncio.timeout(SOON):
            await running.left()


@every
async def test_fifty_leavings_and_fifty_endings_leave_nothing_behind(entry: ProviderEntry) -> None:
    async with entry.start(Scenario(pause=0.001)) as running:
        await outcome(running.provider)
        tasks, threads = len(asyncio.all_tasks()), threading.active_count()
        for _ in range(50):
            async with opened(running.provider) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        break
        results = await asyncio.gather(*(outcome(running.provider) for _ in range(50)))
        assert [got.text for got in results] == ["Hello 안녕하세요 👋🏽"] * 50
        await running.provider.aclose()
        if running.server is not None:
            async with asyncio.timeout(2):
                await running.server.without_connections()
        assert threading.active_count() <= threads
        assert len(asyncio.all_tasks()) <= tasks


@every
@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500, 503])
async def test_a_refusal_is_an_error_before_the_first_event(
    entry: ProviderEntry, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    said = f"No: {CANARY} at http://upstream/?key={CANARY}"
    async with entry.start(Scenario(refusals=(Refusal(status, said, {"retry-after": "7"}),))) as running:
        with pytest.raises(GatewayError) as raised:
            async with opened(running.provider):
                pass
    error = raised.value
    assert error.status == entry.statuses[status]
    assert error.provider == running.provider.name
    assert error.retry_after == (7 if status == 429 else error.retry_after)
    shown = "".join(traceback.format_exception(error)) + repr(error) + error.message + caplog.text
    assert CANARY not in shown


@able("http")
async def test_an_upstream_that_is_not_there_is_unavailable(entry: ProviderEntry) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    error = await _refused_at(entry, f"http://127.0.0.1:{port}")
    assert (error.status, error.retryable) == (503, True)


@able("http")
async def test_an_unknown_host_is_unavailable(entry: ProviderEntry) -> None:
    error = await _refused_at(entry, f"http://{CANARY}:{CANARY}@no-such-host.invalid")
    assert error.status in (502, 503)


@able("http")
async def test_a_certificate_that_nobody_vouches_for_is_unavailable(entry: ProviderEntry) -> None:
    async with FakeServer({}, tls=self_signed()) as server:
        error = await _refused_at(entry, server.url)
    assert (error.status, error.retryable) == (503, False)
    assert server.requests == []


async def _refused_at(entry: ProviderEntry, url: str) -> GatewayError:
    assert entry.row is not None
    provider = cast(ChatProvider, build(entry.row(url), "chat", Settings()))
    try:
        got = await outcome(provider)
    finally:
        await provider.aclose()
    assert got.events == []
    assert got.error is not None
    assert CANARY not in "".join(traceback.format_exception(got.error)) + repr(got.error)
    return got.error


@able("sse")
@pytest.mark.parametrize("content_type", ["text/html; charset=utf-8", "application/octet-stream"])
async def test_a_web_page_is_not_an_answer(entry: ProviderEntry, content_type: str) -> None:
    page = Answer((b"\n<!doctype html><title>Sign in</title>",), headers={"content-type": content_type})
    async with entry.start(Scenario(instead=page)) as running:
        got = await outcome(running.provider)
    assert got.events == []
    assert got.error is not None
    assert got.error.status == 502
    assert "web page" in got.error.message


@able("sse")
async def test_a_compressed_stream_is_read(entry: ProviderEntry) -> None:
    scenario = Scenario(gzip=True)
    async with entry.start(scenario) as running:
        got = await outcome(running.provider)
    assert (got.text, got.error) == (scenario.text, None)


@able("sse")
async def test_an_endless_line_is_refused_before_it_fills_the_memory(entry: ProviderEntry) -> None:
    line = Answer((b"data: ", *(b"x" * 65536,) * 160, b"\n\n"))
    async with entry.start(Scenario(instead=line)) as running:
        got = await outcome(running.provider)
    assert got.events == []
    assert got.error is not None
    assert got.error.status == 502


@every
async def test_silence_before_the_first_event_is_a_timeout(entry: ProviderEntry) -> None:
    async with entry.start(Scenario(then=Act.HANG)) as running:
        got = await outcome(running.provider, Patience(first_event=0.05, idle=5, retries=2))
        async with asyncio.timeout(SOON):
            await running.left()
    assert got.events == []
    assert isinstance(got.error, UpstreamTimeout)


@every
async def test_silence_midway_is_a_timeout_that_keeps_the_text(entry: ProviderEntry) -> None:
    async with entry.start(Scenario(pieces_before=2, then=Act.HANG)) as running:
        got = await outcome(running.provider, Patience(first_event=5, idle=0.05))
        async with asyncio.timeout(SOON):
            await running.left()
    assert got.text == "Hello "
    assert isinstance(got.error, UpstreamTimeout)


@every
async def test_a_retry_before_the_first_event_gives_one_clean_answer(entry: ProviderEntry) -> None:
    waits = {"retry-after": "0"}
    scenario = Scenario(refusals=(Refusal(503, headers=waits), Refusal(429, headers=waits)))
    async with entry.start(scenario) as running:
        got = await outcome(running.provider, replace(PATIENCE, retries=2))
    assert (got.text, got.error) == (scenario.text, None)


@every
async def test_no_more_is_tried_than_configured(entry: ProviderEntry) -> None:
    scenario = Scenario(refusals=(Refusal(429, headers={"retry-after": "0"}),) * 2)
    async with entry.start(scenario) as running:
        got = await outcome(running.provider, replace(PATIENCE, retries=1))
    assert got.events == []
    assert got.error is not None
    assert got.error.status == 429


@every
async def test_what_the_caller_must_repair_is_not_tried_again(entry: ProviderEntry) -> None:
    async with entry.start(Scenario(refusals=(Refusal(400),))) as running:
        got = await outcome(running.provider, replace(PATIENCE, retries=3))
    assert got.error is not None
    assert got.error.status == 400


@every
async def test_the_pause_that_the_upstream_asks_for_is_kept(entry: ProviderEntry) -> None:
    loop = asyncio.get_running_loop()
    scenario = Scenario(refusals=(Refusal(429, headers={"retry-after": "1"}),))
    async with entry.start(scenario) as running:
        began = loop.time()
        got = await outcome(running.provider, replace(PATIENCE, retries=1))
        waited = loop.time() - began
    assert got.text == scenario.text
    assert waited >= 1


@every
async def test_a_longer_pause_is_the_callers_to_keep(entry: ProviderEntry) -> None:
    scenario = Scenario(refusals=(Refusal(429, headers={"retry-after": "60"}),))
    async with entry.start(scenario) as running, asyncio.timeout(2):
        got = await outcome(running.provider, replace(PATIENCE, retries=3))
    assert got.error is not None
    assert (got.error.status, got.error.retry_after) == (429, 60)
