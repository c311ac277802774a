"""A chat request as a model's `input`: by the model's own schema, or by the usual names."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.replicate_input import input_schema, model_input, usage_of
from gateway.errors import InvalidRequest, Unsupported
from gateway.events import Usage
from gateway.request import (
    ChatRequest,
    Image,
    Message,
    Role,
    Sampling,
    ToolCall,
    ToolResult,
    text_message,
)
from tests.remote.upstreams import chat, outcome, provider_for, recorded
from tests.upstreams.byte_server import json_answer
from tests.upstreams.replicate_fake import event_stream, replicate_fake

SAMPLING = Sampling(max_tokens=9, temperature=0.0, top_p=0.5, top_k=3, stop=("END", "\n\n"), seed=7)
SYSTEM = text_message(Role.SYSTEM, "Be brief.")
TURNS = (
    text_message(Role.USER, "Hi"),
    text_message(Role.ASSISTANT, "Hello!"),
    text_message(Role.USER, "안녕?"),
)


def asked(*messages: Message, **fields: Any) -> ChatRequest:
    return chat(messages=messages, **fields)


def schema(**properties: Any) -> dict[str, Any]:
    return {"properties": properties}


def test_the_usual_names_are_assumed_without_a_schema() -> None:
    values = model_input(asked(SYSTEM, TURNS[0], sampling=SAMPLING), None)
    assert values == {
        "prompt": "Hi",
        "system_prompt": "Be brief.",
        "max_tokens": 9,
        "temperature": 0.0,
        "top_p": 0.5,
        "top_k": 3,
        "seed": 7,
        "stop_sequences": "END,\n\n",
    }


def test_what_is_not_asked_for_is_not_sent() -> None:
    assert model_input(asked(TURNS[0]), None) == {"prompt": "Hi"}


def test_only_fields_of_the_schema_are_sent() -> None:
    fields = schema(prompt={"type": "string"}, max_new_tokens={"type": "integer"}, min_tokens={})
    request = asked(SYSTEM, TURNS[0], sampling=SAMPLING, extra={"min_tokens": 1, "stream_options": {}})
    assert model_input(request, fields) == {"prompt": "Be brief.\n\nHi", "max_new_tokens": 9, "min_tokens": 1}


def test_extra_fields_pass_when_the_schema_is_unknown_and_go_before_ours() -> None:
    values = model_input(asked(TURNS[0], extra={"min_tokens": 1, "prompt": "raw"}), None)
    assert values == {"prompt": "raw", "min_tokens": 1}


def test_several_turns_become_one_prompt_with_speakers() -> None:
    values = model_input(asked(SYSTEM, *TURNS), None)
    assert values == {
        "system_prompt": "Be brief.",
        "prompt": "User: Hi\n\nAssistant: Hello!\n\nUser: 안녕?\n\nAssistant:",
    }


def test_calls_of_tools_in_the_history_are_told_as_text() -> None:
    call = Message(Role.ASSISTANT, (ToolCall("1", "clock", "{}"),))
    result = Message(Role.TOOL, (ToolResult("1", "noon"),))
    prompt = model_input(asked(TURNS[0], call, result), None)["prompt"]
    assert prompt == "User: Hi\n\nAssistant: clock({})\n\nTool: noon\n\nAssistant:"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("array", [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]),
        ("string", '[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]'),
    ],
)
def test_messages_are_sent_where_the_model_takes_them(kind: str, expected: object) -> None:
    fields = schema(prompt={}, system_prompt={}, messages={"type": kind})
    assert model_input(asked(SYSTEM, TURNS[0]), fields) == {"messages": expected}
    values = model_input(asked(SYSTEM, TURNS[0]), {**fields, "required": ["prompt"]})
    assert values == {"messages": expected, "prompt": "Hi", "system_prompt": "Be brief."}


def test_stop_sequences_are_a_list_where_the_schema_wants_one() -> None:
    fields = schema(prompt={}, stop_sequences={"type": "array"})
    assert model_input(asked(TURNS[0], sampling=Sampling(stop=("a,b",))), fields)["stop_sequences"] == ["a,b"]


def test_a_stop_that_cannot_be_told_and_an_image_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="comma"):
        model_input(asked(TURNS[0], sampling=Sampling(stop=("a,b",))), None)
    with pytest.raises(Unsupported, match="image"):
        model_input(asked(Message(Role.USER, (Image("https://x/y.png"),))), None)


@pytest.mark.parametrize("document", [None, [], {}, {"components": []}, {"components": {"schemas": {"Input": 1}}}])
def test_a_document_without_a_schema_has_none(document: object) -> None:
    assert input_schema(document) is None


@pytest.mark.parametrize("metrics", [None, [], {}, {"predict_time": 1.0}, {"input_token_count": "3"}])
def test_metrics_without_counts_are_no_usage(metrics: object) -> None:
    assert usage_of(metrics) is None


def test_metrics_with_one_count_are_usage() -> None:
    assert usage_of({"output_token_count": 3.0}) == Usage(output_tokens=3)


@pytest.mark.parametrize(
    ("model", "path"),
    [("meta/llama", "/v1/models/meta/llama"), ("meta/llama:abc1", "/v1/models/meta/llama/versions/abc1")],
)
async def test_the_schema_is_read_once(model: str, path: str) -> None:
    fields: dict[str, Any] = {"properties": {"prompt": {}, "max_new_tokens": {}}}
    async with replicate_fake(event_stream(recorded("replicate")), schema=fields) as fake:
        provider = provider_for("replicate", fake.server.url)
        for _ in range(2):
            await outcome(provider.stream(chat(model=model, sampling=SAMPLING)))
        await provider.aclose()
        assert [request.path for request in fake.server.received("GET", "/models/")] == [path]
        assert fake.created.json["input"] == {"prompt": "Hi", "max_new_tokens": 9}


async def test_a_refused_input_makes_the_schema_be_read_again() -> None:
    fields: dict[str, Any] = {"properties": {"prompt": {}}}
    create = json_answer({"detail": "- input: prompt is required"}, 422)
    async with replicate_fake(event_stream(), schema=fields, create=create) as fake:
        provider = provider_for("replicate", fake.server.url)
        for _ in range(2):
            _, _, error = await outcome(provider.stream(chat()))
            assert isinstance(error, InvalidRequest)
        await provider.aclose()
        assert len(fake.server.received("GET", "/models/")) == 2
