"""Tokens that go past a provider's generator to who takes them: the text, its end, a failure and a departure are the
same as by the long way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from gateway.events import Failed, Finished, StreamEvent, TextDelta
from tests.contract import connector_entry
from tests.contract.entry import CANARY, ProviderEntry, Running
from tests.contract.providers import ENTRIES
from tests.contract.reading import PATIENCE, SOON, opened
from tests.contract.remote_entries import OPENSEARCH, REPLICATE
from tests.contract.scenario import Scenario
from tests.upstreams.byte_server import Act, Answer
from tests.upstreams.replicate_fake import DONE, EVENT_STREAM, output

pytestmark = pytest.mark.usefixtures("few_or_a_crowd")

PAUSE = 0.003
WORDS = tuple(f"word {number} " for number in range(12))

all_upstreams = pytest.mark.parametrize(
    "entry", [entry for entry in ENTRIES if entry.name != "scripted"], ids=lambda entry: entry.name
)


class Hand:
    """Takes what comes the short way, all or only `most` texts; hears the rest as well."""

    def __init__(self, most: int = 1_000) -> None:
        self.most = most
        self.heard: list[tuple[str, str]] = []
        self.last: StreamEvent | None = None
        self._came = asyncio.Event()

    def ready(self) -> bool:
        return len(self.heard) < self.most

    def take(self, items: Sequence[StreamEvent]) -> None:
        assert items
        for item in items:
            self.hear("short", item)

    def hear(self, way: str, event: StreamEvent) -> None:
        if isinstance(event, TextDelta):
            self.heard.append((way, event.text))
            self._came.set()

    async def until(self, texts: int) -> None:
        async with asyncio.timeout(5):
            while len(self.heard) < texts:
                self._came.clear()
                await self._came.wait()

    @property
    def text(self) -> str:
        return "".join(text for _, text in self.heard)

    @property
    def ways(self) -> set[str]:
        return {way for way, _ in self.heard}


async def listen(running: Running, hand: Hand) -> None:
    async with asyncio.timeout(10), opened(running, replace(PATIENCE, retries=3)) as events:
        events.hand_to(hand)
        async for event in events:
            hand.hear("long", event)
            hand.last = event


@all_upstreams
@pytest.mark.parametrize("cut", [1, 7, None])
async def test_the_text_is_whole_however_the_bytes_are_cut(entry: ProviderEntry, cut: int | None) -> None:
    scenario, hand = Scenario(pause=PAUSE, cut=cut), Hand()
    async with entry.start(scenario) as running:
        await listen(running, hand)
    assert hand.text == scenario.text
    assert isinstance(hand.last, Finished)
    assert hand.last.usage == entry.usage
    assert "short" in hand.ways


@all_upstreams
async def test_who_does_not_take_gets_the_rest_by_the_long_way(entry: ProviderEntry) -> None:
    scenario, hand = Scenario(pieces=WORDS, pause=PAUSE), Hand(most=5)
    async with entry.start(scenario) as running:
        await listen(running, hand)
    assert hand.text == scenario.text
    assert isinstance(hand.last, Finished)
    assert hand.ways == {"short", "long"}


@all_upstreams
@pytest.mark.parametrize("then", [Act.DROP, b""], ids=["drop", "error"])
async def test_a_failure_comes_after_all_that_came_before_it(entry: ProviderEntry, then: Act | bytes) -> None:
    hand = Hand()
    async with entry.start(Scenario(pieces=WORDS, pause=PAUSE, pieces_before=6, then=then)) as running:
        await listen(running, hand)
    assert hand.text == "".join(WORDS[:6])
    assert isinstance(hand.last, Failed)
    assert hand.last.error.status == 502
    assert "short" in hand.ways


@all_upstreams
async def test_a_failure_in_the_piece_of_a_text_is_told_as_ever(entry: ProviderEntry) -> None:
    hand = Hand()
    async with entry.start(Scenario(pieces=WORDS, pause=PAUSE, pieces_before=6, then=b"")) as running:
        assert running.upstream is not None
        *before, text, failure = running.upstream.answer.steps
        assert isinstance(text, bytes)
        assert isinstance(failure, bytes)
        running.upstream.answer_with(replace(running.upstream.answer, steps=[*before, text + failure]))
        await listen(running, hand)
        posts = [request.path for request in running.upstream.server.requests if request.method != "GET"]
        assert len(set(posts)) == len(posts)
    assert hand.text == "".join(WORDS[:6])
    assert isinstance(hand.last, Failed)
    assert hand.last.error.status == 502
    assert "short" in hand.ways


@pytest.mark.parametrize("most", [1_000, 0], ids=["short", "long"])
async def test_a_connectors_key_is_kept_out_of_a_failure_that_comes_with_text(most: int) -> None:
    hand = Hand(most)
    async with connector_entry.ENTRY.start(Scenario(pieces=WORDS, pause=PAUSE, pieces_before=6, then=b"")) as running:
        assert running.upstream is not None
        *before, text, _ = running.upstream.answer.steps
        assert isinstance(text, bytes)
        failure = f'data: {{"error":{{"message":"No such key {CANARY}","type":"server_error"}}}}\n\n'.encode()
        running.upstream.answer_with(replace(running.upstream.answer, steps=[*before, text + failure]))
        await listen(running, hand)
    assert hand.text == "".join(WORDS[:6])
    assert isinstance(hand.last, Failed)
    assert "No such key" in hand.last.error.message
    assert CANARY not in hand.last.error.message


@all_upstreams
async def test_leaving_lets_the_upstream_go(entry: ProviderEntry) -> None:
    hand = Hand()
    async with entry.start(Scenario(pieces=WORDS, pause=PAUSE, pieces_before=4, then=Act.HANG)) as running:
        listening = asyncio.create_task(listen(running, hand))
        await hand.until(4)
        listening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await listening
        async with asyncio.timeout(SOON):
            await running.left()
    assert "short" in hand.ways


async def test_a_cluster_that_streams_the_short_way_is_not_silent() -> None:
    """It has a limit of its own for that."""
    scenario, hand = Scenario(pieces=WORDS[:8], pause=0.1, pieces_before=8, then=Act.HANG), Hand()
    async with OPENSEARCH.start(scenario, idle_seconds=0.4) as running:
        await listen(running, hand)
    assert hand.text == scenario.text
    assert isinstance(hand.last, Failed)
    assert "sent nothing for 0.4 s in the middle" in hand.last.error.message


async def test_a_prediction_goes_on_after_each_cut_that_follows_new_text() -> None:
    """More often than cuts without new text are borne, and without the text that is repeated."""
    texts, hand = [output(number, word) for number, word in enumerate(WORDS[:8])], Hand()
    streams: list[Answer] = []
    for first in range(6):
        steps: list[Any] = [step for text in texts[first : first + 3] for step in (text, PAUSE)]
        streams.append(Answer([*steps, Act.DROP if first < 5 else DONE], headers=EVENT_STREAM))
    async with REPLICATE.start(Scenario()) as running:
        assert running.upstream is not None
        server, route = running.upstream.server, running.upstream.route
        server.routes[route] = streams
        await listen(running, hand)
        asked = [request.headers.get("last-event-id") for request in server.asked(route)]
    assert hand.text == "".join(WORDS[:8])
    assert isinstance(hand.last, Finished)
    assert asked == [None, *(f"1795984714:{number}" for number in range(2, 7))]
    assert "short" in hand.ways
