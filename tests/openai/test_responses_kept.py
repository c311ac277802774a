"""Responses that are asked for later: by id, as the next turn's history, and as a stream that goes on."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tests.running import Service
from tests.test_leaving import wait_for


@pytest.fixture
def client(guarded: Service) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{guarded.url}/v1", api_key="sk-canary-first", max_retries=0) as made:
        yield made


@pytest.fixture
def web(guarded: Service) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=guarded.url, headers=guarded.headers, timeout=20) as made:
        yield made


def parsed(text: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]


def streamed(web: httpx.Client, model: str) -> list[dict[str, Any]]:
    return parsed(web.post("/v1/responses", json={"model": model, "input": "hi", "stream": True}).text)


@pytest.mark.parametrize("model", ["hello", "tools", "reasoning", "length", "fails-midway"])
def test_a_kept_response_is_what_its_last_event_said(web: httpx.Client, client: openai.OpenAI, model: str) -> None:
    events = streamed(web, model)
    last = events[-1]["response"]
    assert web.get(f"/v1/responses/{last['id']}").json() == last
    for after in (0, 3, len(events) - 2):
        stream = client.responses.retrieve(last["id"], stream=True, starting_after=after)
        assert [event.sequence_number for event in stream] == list(range(after + 1, len(events)))
    again = web.get(f"/v1/responses/{last['id']}", params={"stream": "true"})
    assert parsed(again.text) == events


def test_the_next_turn_knows_the_turns_before(web: httpx.Client, client: openai.OpenAI) -> None:
    first = client.responses.create(model="hello", input="one", instructions="never carried over")
    second = client.responses.create(model="tools", input="two", previous_response_id=first.id)
    call = next(item for item in second.output if item.type == "function_call")
    third = client.responses.create(
        model="conversation",
        input=[
            {"type": "function_call_output", "call_id": call.call_id, "output": "rain"},
            {"role": "user", "content": "three"},
        ],
        previous_response_id=second.id,
    )
    assert third.output_text.split("\n") == [
        "user: one",
        "assistant: Hello 안녕하세요 👋🏽",
        "user: two",
        'assistant: get_weather({"city": "Seoul"}) get_time({})',
        "tool: rain",
        "user: three",
    ]


def test_what_was_not_kept_or_was_deleted_is_not_found(web: httpx.Client, client: openai.OpenAI) -> None:
    unkept = client.responses.create(model="hello", input="hi", store=False)
    kept = client.responses.create(model="hello", input="hi")
    client.responses.delete(kept.id)
    for id in (unkept.id, kept.id, "resp_nope"):
        with pytest.raises(openai.NotFoundError) as unknown:
            client.responses.retrieve(id)
        assert unknown.value.code == "response_not_found"
        with pytest.raises(openai.NotFoundError) as unknown:
            client.responses.create(model="hello", input="hi", previous_response_id=id)
        assert unknown.value.param == "previous_response_id"


def test_only_background_responses_can_be_cancelled_by_request(client: openai.OpenAI) -> None:
    kept = client.responses.create(model="hello", input="hi")
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.cancel(kept.id)
    assert refused.value.code == "not_in_background"


def test_a_running_response_can_be_followed_and_a_left_one_is_cancelled(web: httpx.Client) -> None:
    """A second reader sees it from its first event, while the first reader still waits for more."""
    body = {"model": "hangs-midway", "input": "hi", "stream": True}
    with web.stream("POST", "/v1/responses", json=body) as answer:
        lines = (line for line in answer.iter_lines() if line.startswith("data: "))
        id = json.loads(next(lines).removeprefix("data: "))["response"]["id"]
        assert any('"delta":"Hello"' in line for line in lines)
        url = f"/v1/responses/{id}"
        # What is shown may be some milliseconds behind.
        wait_for(lambda: bool(web.get(url).json()["output"]))
        shown = web.get(url).json()
        assert (shown["status"], shown["output"][0]["status"]) == ("in_progress", "in_progress")
        next_turn = web.post("/v1/responses", json={"model": "hello", "input": "hi", "previous_response_id": id})
        assert next_turn.status_code == 400
        followed: list[dict[str, Any]] = []
        seen = threading.Event()

        def follow() -> None:
            with web.stream("GET", url, params={"stream": "true"}, timeout=10) as second:
                for line in second.iter_lines():
                    if line.startswith("data: "):
                        followed.append(json.loads(line.removeprefix("data: ")))
                        if followed[-1].get("delta") == "Hello":
                            seen.set()

        reader = threading.Thread(target=follow)
        reader.start()
        assert seen.wait(5)
    reader.join(5)
    assert not reader.is_alive()
    assert followed[-1]["type"] == "response.incomplete"
    assert web.get(url).json()["status"] == "cancelled"


def test_a_response_belongs_to_the_key_that_made_it(guarded: Service) -> None:
    url, body = f"{guarded.url}/v1/responses", {"model": "hello", "input": "hi"}
    mine, theirs = {"authorization": "Bearer sk-canary-first"}, {"authorization": "Bearer sk-canary-second"}
    id = httpx.post(url, json=body, headers=mine).json()["id"]
    for _ in range(4):  # whichever worker answers
        assert httpx.get(f"{url}/{id}", headers=mine).status_code == 200
        assert httpx.get(f"{url}/{id}", headers=theirs).status_code == 404
    assert httpx.delete(f"{url}/{id}", headers=theirs).status_code == 404
    stolen = httpx.post(url, json={**body, "previous_response_id": id}, headers=theirs)
    assert stolen.status_code == 404
    refused = httpx.get(f"{url}/{id}")
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
    assert httpx.delete(f"{url}/{id}", headers=mine).json()["deleted"] is True
