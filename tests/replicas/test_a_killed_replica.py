"""A replica dies in the middle of fifty streams."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx

from gateway.sse import SseDecoder
from tests.replicas.conftest import PIECES, TEXT, replicas
from tests.replicas.readers import Reader, create, new_client

STREAMS = 50


async def test_readers_go_on_elsewhere_and_what_is_lost_says_so(tmp_path: Path) -> None:
    with replicas(tmp_path) as both:
        async with new_client() as client:
            made = await asyncio.gather(*(create(client, both.url, "count") for _ in range(STREAMS)))
            readers = [Reader(each["urls"]["stream"]) for each in made]
            reading = [asyncio.create_task(reader.read(client)) for reader in readers]
            await asyncio.sleep(2)  # in the middle
            killed_at = time.monotonic()
            await asyncio.to_thread(both.services[0].kill)
            await asyncio.gather(*reading)
            bodies = [(await client.get(each["urls"]["get"])).json() for each in made]
            again = await create(client, both.url, "brief")
            assert (await Reader(again["urls"]["stream"]).read(client)).text == TEXT
        survivor = both.services[1]
        # What the survivor ran is whole, every one of it, and nothing else is.
        ran = survivor.metric("polywire_streams_total", wire="replicate", outcome="finished") - 1
        assert survivor.metric("polywire_streams_open", wire="replicate") == 0
    whole = [reader for reader in readers if reader.finished]
    lost = [reader for reader in readers if reader.failed]
    assert (len(whole), len(lost)) == (ran, STREAMS - ran)
    assert whole
    assert lost
    assert sum(reader.connections > 1 for reader in whole) > 0
    for reader in readers:
        assert reader.numbers == list(range(len(reader.events)))
    assert all(reader.text == TEXT for reader in whole)
    # It was two seconds into six when its replica died, and what had been said by then was kept.
    assert all(TEXT.startswith(reader.text) and len(reader.events) > PIECES / 10 for reader in lost)
    last = max(reader.ended_at for reader in lost) - killed_at
    print(f"{len(whole)} whole, {len(lost)} lost and told so after {last:.1f} s at most")  # noqa: T201
    assert last < 10
    for reader, body in zip(readers, bodies, strict=True):
        assert body["status"] == ("succeeded" if reader.finished else "failed")
        assert "".join(body["output"]) == reader.text
        assert reader.finished or "died" in body["error"]


async def test_a_stored_response_is_resumed_elsewhere_and_ends_when_its_replica_dies(tmp_path: Path) -> None:
    with replicas(tmp_path) as both:
        one, two = (f"{service.url}/v1/responses" for service in both.services)
        body = {"model": "test/count", "input": "hi", "stream": True}
        seen: list[dict[str, Any]] = []
        async with new_client() as client, client.stream("POST", one, json=body) as answer:
            events = response_events(answer)  # kept, or it would close the answer
            async for event in events:
                seen.append(event)
                if len(seen) == 20:
                    break
            url = f"{two}/{seen[0]['response']['id']}?stream=true&starting_after={seen[9]['sequence_number']}"
            async with client.stream("GET", url) as resumed:
                await asyncio.to_thread(both.services[0].kill)
                killed_at = time.monotonic()
                rest = [event async for event in response_events(resumed)]
    assert time.monotonic() - killed_at < 12
    assert rest[:10] == seen[10:20]
    assert [event["sequence_number"] for event in rest] == list(range(10, 10 + len(rest)))
    assert rest[-1]["type"] == "response.failed"
    assert "died" in rest[-1]["response"]["error"]["message"]


async def response_events(answer: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    decoder = SseDecoder()
    async for piece in answer.aiter_raw():
        for event in decoder.feed(piece):
            if event.text != "[DONE]":
                yield json.loads(event.text)
