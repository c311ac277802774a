"""What every chat provider owes: the text whole, one true ending, a clear refusal, and its upstream let go at once."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from gateway.completion import collect
from gateway.events import Failed, FinishReason, TextDelta
from tests.contract.entry import ProviderEntry
from tests.contract.providers import ENTRIES
from tests.contract.reading import PATIENCE, SOON, able, every, opened, outcome, with_row
from tests.contract.scenario import Call, Scenario
from tests.upstreams.byte_server import Act, Framing

EVERY = 7
"""Bytes between two cuts, where not every one is tried; a prime, so that they fall everywhere in a frame."""


@every
async def test_text_is_whole_however_the_bytes_are_cut(entry: ProviderEntry) -> None:
    scenario = Scenario(cut=1)
    async with entry.start(scenario) as running:
        got = await outcome(running)
    assert (got.text, got.error) == (scenario.text, None)
    assert scenario.text == "Hello 안녕하세요 👋🏽"


@every
async def test_pieces_arrive_one_by_one(entry: ProviderEntry) -> None:
    scenario = Scenario(pause=0.02)
    async with entry.start(scenario) as running:
        got = await outcome(running)
    assert [event.text for event in got.events if isinstance(event, TextDelta)] == list(scenario.pieces)


@every
async def test_usage_is_counted(entry: ProviderEntry) -> None:
    async with entry.start(Scenario()) as running, opened(running) as events:
        whole = await collect(events)
    assert whole.usage == entry.usage


@pytest.mark.parametrize(
    ("entry", "reason"), [(entry, reason) for entry in ENTRIES for reason in sorted(entry.reasons)]
)
async def test_the_reason_of_the_ending_is_told(entry: ProviderEntry, reason: FinishReason) -> None:
    async with entry.start(Scenario(reason=reason)) as running:
        got = await outcome(running)
    assert got.finished is not None
    assert got.finished.reason is reason


@able("reasoning")
async def test_reasoning_is_apart_from_the_text(entry: ProviderEntry) -> None:
    scenario = Scenario(reasoning=("I ", "think."))
    async with entry.start(scenario) as running, opened(running) as events:
        whole = await collect(events)
    assert (whole.reasoning, whole.text) == ("I think.", scenario.text)


@able("tools")
async def test_two_tool_calls_stay_two(entry: ProviderEntry) -> None:
    calls = (Call("call_1", "get_weather", '{"city":"서울"}'), Call("call_2", "get_time", '{"zone":"KST"}'))
    scenario = Scenario(pieces=(), calls=calls, reason=FinishReason.TOOL_CALLS, cut=1)
    async with entry.start(scenario) as running, opened(running) as events:
        whole = await collect(events)
    assert [(made.call_id, made.name, made.arguments) for made in whole.tool_calls] == [
        (call.call_id, call.name, call.arguments) for call in calls
    ]
    assert whole.reason is FinishReason.TOOL_CALLS


def _cuts(length: int, framing: Framing) -> range:
    """Every byte, where a cut is told from an end by the framing of each piece; a sample of them in the other two."""
    return range(0, length, 1 if framing is Framing.CHUNKED else EVERY)


@able("http")
@pytest.mark.parametrize("framing", list(Framing))
async def test_a_cut_after_any_byte_is_a_failure_that_keeps_the_text(entry: ProviderEntry, framing: Framing) -> None:
    scenario = Scenario(pieces=("Hello 안", "녕하세요 👋🏽"), framing=framing)
    async with entry.start(scenario) as running:
        assert running.upstream is not None
        whole = await outcome(running)
        assert whole.text == scenario.text
        answer, successes = running.upstream.answer, []
        for at in _cuts(len(answer.body), framing):
            running.upstream.answer_with(replace(answer, truncated_at=at))
            got = await outcome(running)
            assert scenario.text.startswith(got.text), f"cut after {at} bytes"
            if got.error is None:
                successes.append((at, got.text))
    if framing is not Framing.CLOSE:
        assert successes == []
    # Where the end of the connection is the end of the body, an answer whose ending was told already is whole.
    assert all(text == scenario.text for _, text in successes)


@every
@pytest.mark.parametrize("then", [Act.DROP, Act.RESET, b""], ids=["drop", "reset", "error"])
async def test_a_failure_midway_keeps_the_text_and_is_no_success(entry: ProviderEntry, then: Act | bytes) -> None:
    scenario = Scenario(pieces_before=2, then=then)
    async with entry.start(scenario) as running:
        got = await outcome(running, replace(PATIENCE, retries=3))
        if running.upstream is not None:
            posts = [request.path for request in running.upstream.server.requests if request.method != "GET"]
            assert len(set(posts)) == len(posts)
    assert got.text == "Hello "
    assert isinstance(got.events[-1], Failed)
    assert got.events[-1].error.status == 502


@every
async def test_leaving_before_the_first_token_lets_the_upstream_go(entry: ProviderEntry) -> None:
    async with entry.start(Scenario(then=Act.HANG)) as running:
        reading = asyncio.create_task(outcome(running))
        await running.begun()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        async with asyncio.timeout(SOON):
            await running.left()


@every
@pytest.mark.parametrize("pause", [0, 0.02], ids=["while it is silent", "while it speaks"])
async def test_leaving_midway_lets_the_upstream_go(entry: ProviderEntry, pause: float) -> None:
    speaking = Scenario(pieces=("word ",) * 200, pause=pause)
    async with entry.start(speaking if pause else replace(speaking, pieces_before=3, then=Act.HANG)) as running:
        async with opened(running) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    break
        async with asyncio.timeout(SOON):
            await running.left()


@every
async def test_fifty_leavings_and_fifty_endings_leave_nothing_behind(entry: ProviderEntry) -> None:
    async with entry.start(Scenario(pause=0.001)) as running:
        await outcome(running)
        tasks, threads = len(asyncio.all_tasks()), threading.active_count()
        for _ in range(50):
            async with opened(running) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        break
        results = await asyncio.gather(*(outcome(running) for _ in range(50)))
        assert [got.text for got in results] == ["Hello 안녕하세요 👋🏽"] * 50
        await running.provider.aclose()
        if running.upstream is not None:
            await running.upstream.server.without_connections()
        assert threading.active_count() <= threads
        assert len(asyncio.all_tasks()) <= tasks


@every
async def test_a_stream_survives_the_ends_of_others(entry: ProviderEntry) -> None:
    """They share one session, which is closed with the provider and not before."""
    async with entry.start(Scenario(pause=0.02)) as running, opened(running) as first:
        others = [asyncio.create_task(outcome(running)) for _ in range(2)]
        async with opened(running) as left:
            await anext(left)
        assert [(await other).error for other in others] == [None, None]
        assert "".join([event.text async for event in first if isinstance(event, TextDelta)]) == "Hello 안녕하세요 👋🏽"


@able("http")
async def test_more_streams_are_open_than_a_librarys_usual_hundred(entry: ProviderEntry) -> None:
    async with entry.start(Scenario(pieces_before=1, then=Act.HANG)) as running, AsyncExitStack() as stack:
        assert running.upstream is not None
        streams = await asyncio.gather(*(stack.enter_async_context(opened(running)) for _ in range(120)))
        assert len(running.upstream.server.connections) >= len(streams)


@with_row
async def test_more_streams_than_connections_wait_their_turn(entry: ProviderEntry) -> None:
    async with entry.start(Scenario(), connections=2) as running:
        assert running.upstream is not None
        results = await asyncio.gather(*(outcome(running) for _ in range(8)))
        assert [got.error for got in results] == [None] * 8
        assert running.upstream.server.most_connections == 2
