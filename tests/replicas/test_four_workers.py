"""`WORKERS=4`: nothing depends on which worker answers, and the embedded model is loaded once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest

from tests.opensearch.cluster import HELLO, ML, as_json, completion, openai_connector
from tests.predictions.caller import Caller, read_until
from tests.predictions.conftest import cluster_config
from tests.predictions.events import joined
from tests.replicas.readers import new_client
from tests.running import Service, running
from tests.upstreams.byte_server import ByteServer

WORKERS = 4
MANY = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("four")


@pytest.fixture(scope="module")
def four(folder: Path) -> Iterator[Service]:
    config = cluster_config()
    config["connectors"] = {"trusted_endpoints": [r"^http://127\.0\.0\.1:\d+/.*$"]}
    config["providers"].append({"name": "local", "type": "local"})
    config["models"].append({"id": "embedded", "provider": "local", "upstream": "chat"})
    with running(folder, config, workers=WORKERS, environment={"TMPDIR": str(folder)}) as started:
        yield started


def test_predictions_are_streamed_resumed_listed_and_cancelled_on_any_worker(four: Service) -> None:
    """Each request has a connection of its own, so that any worker may get it."""
    caller = Caller(four)
    assert len(four.workers()) == WORKERS
    before = four.metric("polywire_streams_total", wire="replicate")
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: caller.create("count"), range(MANY)))
        whole = list(pool.map(caller.events, made))
        resumed = list(pool.map(lambda each: caller.events(each, **{"last-event-id": whole[0][2][2]}), made[:1] * MANY))
        hanging = list(pool.map(lambda _: caller.create("hangs"), range(MANY)))
        list(pool.map(lambda each: read_until(each["urls"]["stream"], "Begun"), hanging))
        cancelled = list(pool.map(lambda each: caller.send("POST", each["urls"]["cancel"]).json(), hanging))
        listed = list(pool.map(lambda _: caller.send("GET", "/v1/predictions").json()["results"], range(WORKERS)))
    assert {joined(events) for events in whole} == {"0 1 2 3 4 5 6 7 "}
    assert all(events == whole[0][3:] for events in resumed)
    assert {body["status"] for body in cancelled} == {"canceled"}
    for results in listed:
        assert {each["id"] for each in (*made, *hanging)} <= {each["id"] for each in results}
    outcomes = {
        name: four.metric("polywire_streams_total", wire="replicate", outcome=name)
        for name in ("finished", "cancelled")
    }
    assert outcomes == {"finished": MANY, "cancelled": MANY}
    assert four.metric("polywire_streams_total", wire="replicate") == before + 2 * MANY
    assert four.metric("polywire_streams_open", wire="replicate") == 0


async def test_what_is_registered_on_one_worker_is_served_by_all_within_a_second(four: Service) -> None:
    body = {"parameters": {"messages": HELLO}}
    async with new_client() as client, ByteServer({"/v1/chat/completions": as_json(completion())}) as remote:
        created = await client.post(f"{four.url}{ML}/connectors/_create", json=openai_connector(remote.url))
        model = {"name": "chat", "function_name": "remote", "connector_id": created.json()["connector_id"]}
        registered = await client.post(f"{four.url}{ML}/models/_register?deploy=true", json=model)
        path = f"{four.url}{ML}/models/{registered.json()['model_id']}/_predict"
        answers = await asyncio.gather(*(client.post(path, json=body) for _ in range(MANY)))
    # All were asked at once, so none of the workers needed the second.
    assert {answer.status_code for answer in answers} == {200}


def test_all_workers_share_one_embedded_model_that_outlives_none_of_them(four: Service, folder: Path) -> None:
    def ask(_: int) -> str:
        body = {"prompt": "Say hello.", "model": "embedded", "max_tokens": 4}
        return httpx.post(f"{four.url}/generate", json=body, timeout=60).raise_for_status().text

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(4 * WORKERS)))
    (child,) = (
        process for process in psutil.process_iter(["cmdline", "environ"])
        if "local_server" in " ".join(process.info["cmdline"] or ())
        and (process.info["environ"] or {}).get("TMPDIR") == str(folder)
    )  # fmt: skip
    # It is nobody's child process, so that a worker's death does not take it from the others.
    assert child not in four.processes()
    # The last test of this module: nobody is told anything, and the child still leaves.
    four.kill()
    child.wait(5)
