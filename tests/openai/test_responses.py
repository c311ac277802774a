"""The Responses route with the official SDK and with exact bytes."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.running import Service

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
FUNCTION = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}, "strict": False}


def create(service: Service, **body: object) -> httpx.Response:
    return httpx.post(f"{service.url}/v1/responses", json={"input": "hi", **body})


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    """The events of a streamed answer, each valid for the official types."""
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.text.endswith("\n\n")
    bodies = []
    for block in answer.text.removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        EVENT.validate_json(data.removeprefix("data: "), strict=True)
        bodies.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {bodies[-1]['type']}"
    assert [body["sequence_number"] for body in bodies] == list(range(len(bodies)))
    return bodies


def test_a_stream_is_read_by_the_sdk(client: openai.OpenAI) -> None:
    with client.responses.stream(model="hello", input="hi") as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert "".join(deltas) == final.output_text == "Hello 안녕하세요 👋🏽"
    assert final.usage is not None
    assert final.usage.total_tokens == 6


async def test_the_async_client_streams_too(async_client: openai.AsyncOpenAI) -> None:
    stream = await async_client.responses.create(model="hello", input="hi", stream=True)
    last = [event async for event in stream][-1]
    assert last.type == "response.completed"
    assert last.response.output_text == "Hello 안녕하세요 👋🏽"


def test_a_whole_response_is_read_by_the_sdk(client: openai.OpenAI) -> None:
    answer = client.responses.create(model="tools", input="hi", tools=[FUNCTION])  # type: ignore[list-item]
    calls = [(item.name, item.arguments) for item in answer.output if item.type == "function_call"]
    assert calls == [("get_weather", '{"city": "Seoul"}'), ("get_time", "{}")]


@pytest.mark.parametrize("model", ["hello", "reasoning", "tools", "empty", "length"])
def test_every_frame_is_valid_for_the_official_types(service: Service, model: str) -> None:
    last = events(create(service, model=model, stream=True))[-1]
    whole = Response.model_validate_json(create(service, model=model).text, strict=True)
    assert last["type"] == f"response.{whole.status}"
    assert [item["type"] for item in last["response"]["output"]] == [item.type for item in whole.output]


@pytest.mark.parametrize("model", ["fails-midway", "faults", "truncated"])
def test_a_failure_midway_is_a_failed_response(service: Service, client: openai.OpenAI, model: str) -> None:
    """Case R1."""
    answer = create(service, model=model, stream=True)
    last = events(answer)[-1]
    assert last["type"] == "response.failed"
    assert last["response"]["output"][0]["content"][0]["text"] == "Hello"
    assert "secret-detail" not in answer.text
    with pytest.raises(openai.InternalServerError):
        client.responses.create(model=model, input="hi")


def test_a_refusal_has_its_status(client: openai.OpenAI) -> None:
    with pytest.raises(openai.RateLimitError):
        client.responses.create(model="fails-first", input="hi", stream=True)
    with pytest.raises(openai.NotFoundError) as unknown:
        client.responses.create(model="nope", input="hi")
    assert unknown.value.code == "model_not_found"


def test_every_kind_of_input_is_taken(service: Service) -> None:
    items = [
        {"role": "developer", "content": "be short"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "weather?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "c", "name": "get_weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "rain"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "rain", "annotations": []}]},
        {
            "role": "user",
            "content": [
                {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto"},
                {"type": "input_text", "text": "say this back"},
            ],
        },
    ]
    answer = create(service, model="echo", input=items, instructions="none", store=False).json()
    assert answer["output"][0]["content"][0]["text"] == "say this back"


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"input": []}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
        ({"input": [{"type": "web_search_call", "id": "x"}]}, "input[0]"),
        ({"input": [{"role": "critic", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}, "input[0].content[0]"),
        ({"input": [{"type": "function_call", "name": "f"}]}, "input[0]"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"truncation": "auto"}, "truncation"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"temperature": "1"}, "temperature"),
        ({"stream_options": {"include_obfuscation": False}}, "stream_options"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(service: Service, wrong: dict[str, object], param: str) -> None:
    answer = create(service, model="hello", **wrong)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
