"""The legacy completions route."""

from __future__ import annotations

import json

import httpx
import openai
import pytest
from openai.types import Completion

from tests.running import Service


def frames(service: Service, **body: object) -> list[str]:
    """The data of every server-sent event of a streamed completion."""
    answer = httpx.post(f"{service.url}/v1/completions", json={"prompt": "a b", "stream": True, **body})
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    return [event.removeprefix("data: ") for event in answer.text.split("\n\n") if event]


def test_a_prompt_is_completed_whole(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="echo", prompt="one two")
    assert answer.choices[0].text == "one two"
    assert client.completions.create(model="echo", prompt=["one"], echo=True).choices[0].text == "oneone"


def test_a_whole_completion_is_valid_for_the_official_types(service: Service) -> None:
    answer = httpx.post(f"{service.url}/v1/completions", json={"model": "length", "prompt": "x"})
    completion = Completion.model_validate_json(answer.text, strict=True)
    assert completion.choices[0].finish_reason == "length"


def test_a_stream_is_read_by_the_sdk(client: openai.OpenAI) -> None:
    chunks = list(client.completions.create(model="hello", prompt="x", stream=True, echo=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == "xHello 안녕하세요 👋🏽"
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * 4 + ["stop"]


def test_usage_comes_once_and_only_when_asked(service: Service) -> None:
    *chunks, done = frames(service, model="hello", stream_options={"include_usage": True})
    assert done == "[DONE]"
    assert json.loads(chunks[-1])["choices"] == []
    assert json.loads(chunks[-1])["usage"]["total_tokens"] == 6
    assert all(json.loads(chunk)["usage"] is None for chunk in chunks[:-1])
    assert not any("usage" in frame for frame in frames(service, model="hello"))


def test_reasoning_is_no_part_of_the_text(client: openai.OpenAI) -> None:
    chunks = list(client.completions.create(model="reasoning", prompt="x", stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == "42"


@pytest.mark.parametrize("model", ["fails-midway", "truncated"])
def test_a_failure_midway_is_an_error_frame(service: Service, client: openai.OpenAI, model: str) -> None:
    *chunks, last = frames(service, model=model)
    assert "error" in json.loads(last)
    assert all('"finish_reason":null' in chunk for chunk in chunks)
    with pytest.raises(openai.APIError):
        list(client.completions.create(model=model, prompt="x", stream=True))


@pytest.mark.parametrize(
    "wrong",
    [
        {"prompt": ["a", "b"]},
        {"prompt": []},
        {"prompt": [1, 2]},
        {"n": 2},
        {"best_of": 2},
        {"suffix": "end"},
        {"logprobs": 3},
        {"stream_options": {"include_usage": True}},
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(client: openai.OpenAI, wrong: dict[str, object]) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model="hello", prompt="x", extra_body=wrong)
    assert (refused.value.param or "").split(".")[0].split("[")[0] in wrong
