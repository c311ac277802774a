"""A replica dies in the middle of fifty streams."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from tests.replicas.conftest import TEXT, replicas
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
    whole = [reader for reader in readers if reader.finished]
    lost = [reader for reader in readers if reader.failed]
    assert len(whole) + len(lost) == STREAMS
    assert whole
    assert lost
    assert sum(reader.connections > 1 for reader in whole) > 0
    for reader in readers:
        assert reader.numbers == list(range(len(reader.events)))
    assert all(reader.text == TEXT for reader in whole)
    assert all(TEXT.startswith(reader.text) and reader.text for reader in lost)
    assert max(reader.ended_at for reader in lost) - killed_at < 10
    for reader, body in zip(readers, bodies, strict=True):
        assert body["status"] == ("succeeded" if reader.finished else "failed")
        assert "".join(body["output"]) == reader.text
        assert reader.finished or "died" in body["error"]
