"""Nothing depends on which replica answers."""

from __future__ import annotations

import asyncio
import time
from itertools import cycle

import httpx

from tests.replicas.conftest import TEXT, Replicas
from tests.replicas.readers import Reader, create, new_client


async def test_a_prediction_is_streamed_listed_got_and_cancelled_on_either_replica(pair: Replicas) -> None:
    one, two = (service.url for service in pair.services)
    async with new_client() as client:
        made = await create(client, one, "brief")
        path = httpx.URL(made["urls"]["stream"]).path
        readers = [await Reader(url + path).read(client) for url in (one, two, pair.url)]
        assert {reader.text for reader in readers} == {TEXT}
        assert readers[0].events == readers[1].events == readers[2].events
        listed = await client.get(f"{two}/v1/predictions")
        assert made["id"] in [each["id"] for each in listed.json()["results"]]
        got = await client.get(f"{two}/v1/predictions/{made['id']}")
        assert (got.json()["status"], "".join(got.json()["output"])) == ("succeeded", TEXT)


async def test_a_reader_that_comes_back_to_another_replica_gets_exactly_the_rest(pair: Replicas) -> None:
    async with new_client() as client:
        made = await create(client, pair.url, "brief")
        path = httpx.URL(made["urls"]["stream"]).path
        whole = await Reader(pair.services[0].url + path).read(client)
        turns = cycle(service.url for service in pair.services)
        for place in range(len(whole.events) - 1):
            reader = Reader(next(turns) + path, events=whole.events[: place + 1])
            assert (await reader.read(client)).events == whole.events


async def test_a_cancel_reaches_the_replica_that_runs_the_stream_within_a_tenth_of_a_second(pair: Replicas) -> None:
    one, two = (service.url for service in pair.services)
    waits = []
    async with new_client() as client:
        for _ in range(5):
            made = await create(client, one, "hangs")
            reader = Reader(one + httpx.URL(made["urls"]["stream"]).path)
            reading = asyncio.create_task(reader.read(client))
            while not reader.events:  # noqa: ASYNC110 - its first event
                await asyncio.sleep(0.01)
            began = time.monotonic()
            answer = await client.post(f"{two}/v1/predictions/{made['id']}/cancel")
            await reading
            waits.append(reader.ended_at - began)
            assert answer.json()["status"] == "canceled"
            assert reader.events[-1][:2] == ("done", '{"reason": "canceled"}')
    assert sorted(waits)[2] < 0.1


async def test_what_is_registered_on_one_replica_is_served_by_the_other_within_a_second(pair: Replicas) -> None:
    one, two = (f"{service.url}/_plugins/_ml" for service in pair.services)
    connector = {
        "name": "chat", "version": 1, "protocol": "http", "description": "",
        "credential": {"openAI_key": "secret"}, "parameters": {"model": "m"},
        "actions": [{
            "action_type": "predict", "method": "POST", "url": "https://api.openai.com/v1/chat/completions",
            "headers": {"Authorization": "Bearer ${credential.openAI_key}"},
            "request_body": '{ "model": "${parameters.model}", "messages": ${parameters.messages} }',
        }],
    }  # fmt: skip
    async with new_client() as client:
        made = await client.post(f"{one}/connectors/_create", json=connector)
        assert made.status_code == 200, made.text
        body = {"name": "chat", "function_name": "remote", "connector_id": made.json()["connector_id"]}
        registered = await client.post(f"{one}/models/_register?deploy=true", json=body)
        assert registered.status_code == 200, registered.text
        model = registered.json()["model_id"]
        began = time.monotonic()
        found = await client.get(f"{two}/models/{model}")
        assert time.monotonic() - began < 1
        assert (found.status_code, found.json()["model_state"]) == (200, "DEPLOYED")
        listed = await client.get(f"{pair.services[1].url}/v1/models")
        assert model in [each["id"] for each in listed.json()["data"]]
        assert (await client.post(f"{two}/models/{model}/_undeploy")).status_code == 200
        assert (await client.delete(f"{two}/models/{model}")).status_code == 200
        assert (await client.get(f"{one}/models/{model}")).status_code == 404


async def test_the_password_of_the_store_is_in_no_log(pair: Replicas) -> None:
    password = pair.redis.password
    assert password
    assert not [service.log for service in pair.services if password in service.log.read_text()]
