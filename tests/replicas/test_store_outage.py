"""Redis is paused, restarted and emptied under running streams."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from tests.conftest import scripted_config
from tests.redis_server import redis_server
from tests.replicas.conftest import TEXT, Replicas
from tests.replicas.readers import Reader, create, new_client
from tests.running import running

STREAMS = 20


async def test_a_pause_of_five_seconds_refuses_new_predictions_and_breaks_none(pair: Replicas) -> None:
    async with new_client() as client:
        made = await asyncio.gather(*(create(client, pair.url, "count") for _ in range(STREAMS)))
        readers = [Reader(each["urls"]["stream"]) for each in made]
        reading = [asyncio.create_task(reader.read(client)) for reader in readers]
        await asyncio.sleep(1)  # in the middle
        with pair.redis.paused():
            began = time.monotonic()
            for service in pair.services:
                asked = time.monotonic()
                refused = await client.post(
                    f"{service.url}/v1/models/test/brief/predictions", json={"input": {"prompt": "hi"}}
                )
                assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
                assert "store" in refused.json()["detail"]
                assert time.monotonic() - asked < 3
            known = made[0]["urls"]
            asked_for = (
                client.get(known["get"]),
                client.post(known["cancel"]),
                client.get(f"{pair.url}/v1/predictions"),
                client.get(f"{pair.url}/v1/responses/resp_none"),
                client.get(f"{pair.url}/_plugins/_ml/models/none"),
            )
            # That it is not there is what nobody can know now.
            assert {answer.status_code for answer in await asyncio.gather(*asked_for)} == {503}
            answered = await client.post(f"{pair.url}/generate", json={"prompt": "hi", "model": "test/brief"})
            assert answered.text == TEXT
            await asyncio.sleep(max(0, 5 - (time.monotonic() - began)))
        await asyncio.gather(*reading)
        assert all(reader.finished for reader in readers), [r.events[-2:] for r in readers if not r.finished]
        assert all(reader.text == TEXT for reader in readers)
        assert {reader.connections for reader in readers} == {1}
        assert (await Reader((await create(client, pair.url, "brief"))["urls"]["stream"]).read(client)).text == TEXT


async def test_a_restart_loses_nothing_when_the_server_keeps_its_data(pair: Replicas) -> None:
    async with new_client() as client:
        made = await asyncio.gather(*(create(client, pair.url, "count") for _ in range(STREAMS)))
        readers = [Reader(each["urls"]["stream"]) for each in made]
        reading = [asyncio.create_task(reader.read(client)) for reader in readers]
        await asyncio.sleep(2)  # in the middle
        await asyncio.to_thread(pair.redis.restart)
        await asyncio.gather(*reading)
        assert all(reader.text == TEXT for reader in readers if reader.finished)
        assert all(reader.finished for reader in readers), [r.events[-2:] for r in readers if not r.finished]


async def test_a_server_that_forgets_everything_ends_its_streams_with_an_error(pair: Replicas) -> None:
    async with new_client() as client:
        made = await asyncio.gather(
            *(create(client, pair.url, model) for model in ("count", "hangs") for _ in range(STREAMS // 2))
        )
        readers = [Reader(each["urls"]["stream"]) for each in made]
        reading = [asyncio.create_task(reader.read(client)) for reader in readers]
        await asyncio.sleep(2)  # in the middle
        emptied_at = time.monotonic()
        pair.redis.command("FLUSHALL")
        await asyncio.gather(*reading)
        assert all(reader.failed for reader in readers)
        assert all(TEXT.startswith(reader.text) or reader.text == "Begun" for reader in readers)
        assert max(reader.ended_at for reader in readers) - emptied_at < 12
        assert (await Reader((await create(client, pair.url, "brief"))["urls"]["stream"]).read(client)).text == TEXT
        open_streams = sum(service.metric("polywire_streams_open", wire="replicate") for service in pair.services)
        assert open_streams == 0


async def test_a_stop_does_not_wait_for_a_server_that_does_not_answer(tmp_path: Path) -> None:
    config = scripted_config(limits={"drain_seconds": 0.5})
    config["models"].append({"id": "test/hangs", "provider": "script", "upstream": "hangs-midway"})
    async with new_client() as client:
        with (
            redis_server(tmp_path / "redis") as redis,
            running(tmp_path, config, environment={"POLYWIRE_STORE": redis.url}) as service,
        ):
            await create(client, service.url, "hangs")
            body = {"model": "hangs-midway", "input": "hi", "stream": True}
            async with client.stream("POST", f"{service.url}/v1/responses", json=body) as answer:
                pieces = answer.aiter_raw()  # kept, or it would close the answer
                await anext(pieces)
                with redis.paused():
                    began = time.monotonic()
                    service.process.terminate()
                    await asyncio.to_thread(service.process.wait, 30)
                    over = time.monotonic() - began
    print(f"process after {over:.2f} s")  # noqa: T201
    assert over < 8
