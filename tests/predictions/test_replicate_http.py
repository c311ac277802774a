"""Creating, reading and refusing predictions, on a service of two workers: nothing depends on who answers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.predictions.caller import Caller
from tests.predictions.conftest import OTHER_KEY
from tests.predictions.events import joined
from tests.running import Service


def test_a_create_answer_has_every_field_and_no_null_that_clients_reject(caller: Caller) -> None:
    """Traps 1, 8 and 9."""
    answer = caller.send("POST", "/v1/models/test/story/predictions", json={"input": {"prompt": "hi"}})
    body = answer.json()
    assert answer.headers["location"] == body["urls"]["get"]
    assert (body["status"], body["output"], body["version"]) == ("starting", None, "hidden")
    assert set(body["urls"]) == {"web", "get", "cancel", "stream"}
    assert all(isinstance(url, str) for url in body["urls"].values())
    assert body["input"] == {"prompt": "hi"}
    assert body["error"] is None
    assert body["created_at"].endswith("Z")
    assert len(body["id"]) == 26


def test_the_output_grows_while_the_prediction_is_processed(caller: Caller) -> None:
    """Trap 12: some clients only poll."""
    prediction = caller.create("hangs")
    deadline = time.monotonic() + 10
    while (body := caller.get(prediction))["output"] is None:
        assert time.monotonic() < deadline
    assert (body["status"], body["output"]) == ("processing", ["Begun"])
    caller.send("POST", prediction["urls"]["cancel"])


def test_a_finished_prediction_has_times_and_metrics(caller: Caller) -> None:
    prediction = caller.create("story", headers={"prefer": "wait"})
    assert prediction["status"] == "succeeded"
    assert prediction["output"] == ["Once", " upon a time", " 옛날옛적에 👩‍👩‍👧"]
    assert prediction["metrics"]["predict_time"] <= prediction["metrics"]["total_time"]
    assert prediction["metrics"]["output_token_count"] == 4
    assert caller.create("empty", headers={"prefer": "wait"})["output"] == []


@pytest.mark.parametrize(("prefer", "applied"), [("wait=1", "wait=1"), ("respond-async, wait=1", "wait=1")])
def test_a_wait_that_ends_early_answers_starting_without_output_and_in_time(
    caller: Caller, prefer: str, applied: str
) -> None:
    """Trap 1: clients take any other status for the end, and skip output that is there."""
    began = time.monotonic()
    answer = caller.send(
        "POST",
        "/v1/models/test/slow/predictions",
        json={"input": {"prompt": "hi"}},
        headers={"prefer": prefer},
    )
    assert 0.9 < time.monotonic() - began < 1.5
    assert answer.headers["preference-applied"] == applied
    body = answer.json()
    assert (body["status"], body["output"]) == ("starting", None)
    assert joined(caller.events(body)) == "ABCD"


def test_three_forms_of_create_and_the_doubled_prefix(caller: Caller) -> None:
    version = caller.send("GET", "/v1/models/test/story/versions").json()["results"][0]["id"]
    assert len(version) == 64
    for path, reference in (
        ("/v1/predictions", "test/story"),
        ("/v1/predictions", f"test/story:{version}"),
        ("/v1/predictions", version),
        ("/v1/v1/predictions", version),
        ("/v1/deployments/test/story/predictions", None),
    ):
        body = {"input": {"prompt": "hi"}} | ({"version": reference} if reference else {})
        made = caller.send("POST", path, json=body, headers={"prefer": "wait=10"}).json()
        assert (made["status"], made["model"], made["version"]) == ("succeeded", "test/story", version)
    assert made["deployment"] == "test/story"


def test_another_key_finds_nothing_and_lists_nothing(caller: Caller) -> None:
    prediction = caller.create("story")
    other = {"authorization": f"Bearer {OTHER_KEY}"}
    for method, path in (("GET", prediction["urls"]["get"]), ("POST", prediction["urls"]["cancel"])):
        answer = caller.send(method, path, headers=other)
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/problem+json"
    listed = caller.send("GET", "/v1/predictions", headers=other).json()
    assert listed == {"previous": None, "next": None, "results": []}


def pages(caller: Caller) -> Iterator[dict[str, Any]]:
    following: str | None = "/v1/predictions"
    while following:
        page = caller.send("GET", following).json()
        yield page
        following = page["next"]


def test_the_list_comes_in_pages_newest_first(caller: Caller) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: caller.create("empty"), range(105)))
    newest = caller.create("story")
    found = list(pages(caller))
    assert len(found[0]["results"]) == 100
    assert found[0]["results"][0]["id"] == newest["id"]
    assert found[0]["next"].startswith(caller.url)
    ids = [result["id"] for page in found for result in page["results"]]
    assert len(ids) == len(set(ids)) > 105


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "input"),
        ({"input": "x"}, "input"),
        ({"input": {}}, "input.prompt"),
        ({"input": {"prompt": 5}}, "input.prompt"),
        ({"input": {"prompt": "hi", "max_tokens": "many"}}, "input.max_tokens"),
        ({"input": {"prompt": "hi", "top_p": 7}}, "input.top_p"),
        ({"input": {"messages": [{"role": "nobody", "content": "x"}]}}, "input.messages.0.role"),
        ({"input": {"prompt": "hi"}, "webhook": "https://169.254.169.254/"}, "webhook"),
        ({"input": {"auth": "r8_secret", "prompt": {"token": "r8_secret"}}}, "input.prompt"),
    ],
)
def test_a_wrong_input_is_422_and_names_its_field_without_quoting_it(
    caller: Caller, cluster: Service, body: dict[str, Any], field: str
) -> None:
    """Traps 10 and 11: a client may send its own token within its input."""
    before = caller.send("GET", "/v1/predictions").json()["results"][0]["id"]
    answer = caller.send("POST", "/v1/models/test/story/predictions", json=body)
    assert answer.status_code == 422
    assert answer.json()["status"] == 422
    assert answer.json()["invalid_fields"][0]["field"] == field
    assert "r8_secret" not in answer.text + cluster.log.read_text()
    assert caller.send("GET", "/v1/predictions").json()["results"][0]["id"] == before


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/v1/models/nobody/nothing/predictions", 404),
        ("GET", "/v1/models/nobody/nothing", 404),
        ("GET", "/v1/models/test/story/versions/x", 404),
        ("GET", "/v1/predictions/unknown", 404),
        ("GET", "/v1/predictions/unknown/more", 404),
        ("GET", "/v1/trainings", 404),
        ("POST", "/v1/files", 501),
        ("PUT", "/v1/predictions", 405),
    ],
)
def test_every_refusal_is_a_problem_object(caller: Caller, method: str, path: str, status: int) -> None:
    answer = caller.send(method, path, **({"json": {"input": {"prompt": "hi"}}} if method == "POST" else {}))
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status
    assert answer.json()["detail"]
    assert answer.headers["x-should-retry"] == "false"


def test_a_missing_key_is_a_problem_object(caller: Caller) -> None:
    answer = httpx.get(f"{caller.url}/v1/predictions")
    assert (answer.status_code, answer.json()["title"]) == (401, "Unauthenticated")


def test_a_body_that_is_no_json_is_refused(caller: Caller) -> None:
    for body in (b"{", b"[]", b"5", b"[" * 100_000, b"\xff"):
        answer = caller.send("POST", "/v1/predictions", content=body)
        assert answer.status_code == 400


def test_a_model_of_two_parts_serves_both_kinds_of_client(caller: Caller) -> None:
    body = caller.send("GET", "/v1/models/test/story").json()
    assert (body["owner"], body["name"], body["id"], body["object"]) == ("test", "story", "test/story", "model")
    schema = body["latest_version"]["openapi_schema"]["components"]["schemas"]
    assert schema["Output"]["x-cog-array-type"] == "iterator"
    assert schema["Output"]["x-cog-array-display"] == "concatenate"
    voice = caller.send("GET", "/v1/models/test/voice").json()
    assert voice["latest_version"]["openapi_schema"]["components"]["schemas"]["Output"]["format"] == "uri"
    assert caller.send("GET", "/v1/models").json()["object"] == "list"
    assert caller.send("GET", "/v1/models/default").json()["id"] == "default"


def test_the_streaming_collection_names_what_streams(caller: Caller) -> None:
    """Mission row 73."""
    found = caller.send("GET", "/v1/collections/streaming-language-models").json()
    names = {f"{model['owner']}/{model['name']}" for model in found["models"]}
    assert "test/story" in names
    assert "test/voice" not in names


def test_a_voice_gives_one_file_and_no_stream(caller: Caller) -> None:
    """Mission row 55: `urls.stream` only for what can stream."""
    answer = caller.send(
        "POST",
        "/v1/models/test/voice/predictions",
        json={"input": {"text": "Hello there"}},
        headers={"prefer": "wait"},
    )
    body = answer.json()
    assert body["status"] == "succeeded"
    assert "stream" not in body["urls"]
    assert body["output"].startswith("data:audio/wav;base64,")


def test_a_host_that_is_no_host_is_not_repeated(caller: Caller) -> None:
    prediction = caller.create("story", headers={"host": "evil.example/path?x"})
    assert "evil" not in json.dumps(prediction["urls"])
