"""The OpenAI chat wire with the official SDK and with exact bytes."""

from __future__ import annotations

import json

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from gateway.events import Finished, FinishReason, Started, StreamEvent, ToolCallDelta, ToolCallStart
from tests.running import Service
from wires.openai.chat import ChunkEncoder

HI: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}


def frames(service: Service, **body: object) -> list[str]:
    """The data of every server-sent event of a streamed answer."""
    answer = httpx.post(f"{service.url}/v1/chat/completions", json={"messages": HI, "stream": True, **body})
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.text.endswith("\n\n")
    return [event.removeprefix("data: ") for event in answer.text.split("\n\n") if event]


def test_a_stream_is_read_by_the_sdk(client: openai.OpenAI) -> None:
    chunks = list(client.chat.completions.create(model="hello", messages=HI, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello 안녕하세요 👋🏽"
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * 4 + ["stop"]


def test_a_whole_answer_is_read_by_the_sdk(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="hello", messages=HI)
    assert answer.choices[0].message.content == "Hello 안녕하세요 👋🏽"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 6


def test_tool_calls_are_whole_in_both_forms(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="tools", messages=HI)
    calls = answer.choices[0].message.tool_calls or []
    assert [call.function.name for call in calls if call.type == "function"] == ["get_weather", "get_time"]
    joined: dict[int, str] = {}
    for chunk in client.chat.completions.create(model="tools", messages=HI, stream=True):
        for call in chunk.choices[0].delta.tool_calls or []:
            if call.function is not None:
                joined[call.index] = joined.get(call.index, "") + (call.function.arguments or "")
    assert joined == {0: '{"city": "Seoul"}', 1: "{}"}


async def test_the_async_client_streams_too(async_client: openai.AsyncOpenAI) -> None:
    stream = await async_client.chat.completions.create(model="hello", messages=HI, stream=True)
    text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert text == "Hello 안녕하세요 👋🏽"


def test_a_call_without_arguments_is_an_empty_object() -> None:
    encoder = ChunkEncoder(include_usage=False)
    events: list[StreamEvent] = [
        Started("1", "m", 1),
        ToolCallStart(0, "a", "first"),
        ToolCallStart(1, "b", "second"),
        ToolCallDelta(1, '{"x":1}'),
        ToolCallDelta(0, ""),
        Finished(FinishReason.TOOL_CALLS),
    ]
    joined = {0: "", 1: ""}
    for frame in [frame for event in events for frame in encoder.encode(event)][:-1]:
        chunk = ChatCompletionChunk.model_validate_json(frame.removeprefix(b"data: "), strict=True)
        for call in chunk.choices[0].delta.tool_calls or []:
            assert call.function is not None
            joined[call.index] += call.function.arguments or ""
    assert joined == {0: "{}", 1: '{"x":1}'}


def test_every_kind_of_message_is_taken(client: openai.OpenAI) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    messages: list[object] = [
        {"role": "developer", "content": "be short"},
        {"role": "user", "content": [{"type": "text", "text": "weather?"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "rain"}]},
        {"role": "assistant", "content": None, "refusal": "I cannot say."},
        {"role": "user", "content": "say this back"},
    ]
    answer = client.chat.completions.create(model="echo", messages=messages)  # type: ignore[arg-type]
    assert answer.choices[0].message.content == "say this back"


def test_usage_comes_exactly_once_and_only_when_asked(service: Service) -> None:
    """Case C3."""
    with_usage = frames(service, model="hello", stream_options={"include_usage": True})
    chunks = [json.loads(frame) for frame in with_usage[:-1]]
    assert [chunk["choices"] == [] for chunk in chunks].count(True) == 1
    assert chunks[-1]["usage"]["total_tokens"] == 6
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    for options in ({"stream_options": {"include_usage": False}}, {}):
        assert not any('"usage"' in frame for frame in frames(service, model="hello", **options))


def test_every_frame_is_valid_for_the_official_types(service: Service) -> None:
    for model in ("hello", "reasoning", "tools", "empty", "length"):
        *chunks, done = frames(service, model=model, stream_options={"include_usage": True})
        assert done == "[DONE]"
        for chunk in chunks:
            ChatCompletionChunk.model_validate_json(chunk, strict=True)
        whole = httpx.post(f"{service.url}/v1/chat/completions", json={"messages": HI, "model": model})
        ChatCompletion.model_validate_json(whole.text, strict=True)


def test_reasoning_has_its_own_field(service: Service) -> None:
    """Case C7."""
    deltas = [json.loads(frame)["choices"][0]["delta"] for frame in frames(service, model="reasoning")[:-1]]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "Let me think."
    assert "".join(delta.get("content") or "" for delta in deltas) == "42"


@pytest.mark.parametrize("model", ["fails-midway", "faults", "truncated"])
def test_a_failure_midway_is_an_error_frame_and_never_a_finish(
    service: Service, client: openai.OpenAI, model: str
) -> None:
    """Case R1."""
    events = frames(service, model=model)
    assert "error" in json.loads(events[-1])
    assert not any('"finish_reason":"' in event or event == "[DONE]" for event in events)
    assert "secret-detail" not in events[-1]
    stream = client.chat.completions.create(model=model, messages=HI, stream=True)
    assert [next(stream).choices[0].delta.content, next(stream).choices[0].delta.content] == ["", "Hello"]
    with pytest.raises(openai.APIError):
        next(stream)


def test_refusals_have_their_status_and_openai_shape(client: openai.OpenAI) -> None:
    """Case R2."""
    with pytest.raises(openai.RateLimitError) as limited:
        client.chat.completions.create(model="fails-first", messages=HI, stream=True)
    assert limited.value.request_id
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="nope", messages=HI)
    assert unknown.value.code == "model_not_found"


@pytest.mark.parametrize(
    "wrong",
    [
        {"n": 2},
        {"logprobs": True},
        {"top_logprobs": 3},
        {"max_tokens": 0},
        {"max_tokens": "12"},
        {"temperature": 3},
        {"stream_options": {"include_usage": True}},
        {"functions": [{"name": "f"}]},
        {"modalities": ["audio"]},
        {"audio": {"voice": "alloy", "format": "mp3"}},
        {"web_search_options": {"search_context_size": "low"}},
        {"tool_choice": "required"},
        {"tool_choice": {"type": "function", "function": {"name": "nope"}}, "tools": [WEATHER]},
        {"response_format": {"type": "xml"}},
        {"response_format": {"type": "json_schema"}},
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(client: openai.OpenAI, wrong: dict[str, object]) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="hello", messages=HI, extra_body=wrong)
    assert (refused.value.param or "").split(".")[0].split("[")[0] in wrong


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "function", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "file", "file": {}}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        ({"messages": [{"role": "assistant"}]}, "messages[0].content"),
        ({"stop": [1]}, "stop[0]"),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice.type"),
        ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "tools[0].type"),
    ],
)
def test_a_refusal_names_the_place(service: Service, wrong: dict[str, object], param: str) -> None:
    answer = httpx.post(f"{service.url}/v1/chat/completions", json={"model": "hello", "messages": HI, **wrong})
    said = answer.json()["error"]
    assert (answer.status_code, said["param"]) == (400, param)
    assert "literal" not in said["message"]


def test_retry_headers_say_whether_asking_again_is_any_use(service: Service) -> None:
    def headers(model: str) -> httpx.Headers:
        return httpx.post(f"{service.url}/v1/chat/completions", json={"messages": HI, "model": model}).headers

    limited = headers("fails-first")
    assert (limited["retry-after"], limited["retry-after-ms"]) == ("1", "1000")
    # What failed midway has cost its provider work already.
    assert headers("truncated")["x-should-retry"] == "false"
    assert headers("nope")["x-should-retry"] == "false"


def test_lone_surrogates_are_refused(service: Service) -> None:
    body = b'{"model":"echo","messages":[{"role":"user","content":"a\\ud83d b"}]}'
    for stream in (b"", b',"stream":true'):
        answer = httpx.post(
            f"{service.url}/v1/chat/completions",
            content=body[:-1] + stream + b"}",
            headers={"content-type": "application/json"},
        )
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "invalid_request"


def test_unknown_routes_and_methods_answer_in_openai_shape(service: Service) -> None:
    missing = httpx.get(f"{service.url}/v1/nothing")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "unknown_route")
    wrong = httpx.get(f"{service.url}/v1/chat/completions")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert httpx.head(f"{service.url}/v1/chat/completions").headers["allow"] == "POST"
    asked = httpx.options(f"{service.url}/v1/chat/completions")
    assert (asked.status_code, asked.headers["allow"]) == (204, "POST, OPTIONS")
    assert httpx.options(f"{service.url}/v1/nothing").status_code == 404
    for body in (b"{", b"\xff", b"[]", b"null", b""):
        broken = httpx.post(
            f"{service.url}/v1/chat/completions", content=body, headers={"content-type": "application/json"}
        )
        assert (broken.status_code, broken.json()["error"]["type"]) == (400, "invalid_request_error")
    odd = httpx.get(f"{service.url}/v1/models/a%0Ab")
    assert (odd.status_code, odd.json()["error"]["type"]) == (404, "invalid_request_error")


def test_models_are_listed_and_found(client: openai.OpenAI) -> None:
    ids = [model.id for model in client.models.list()]
    assert "hello" in ids
    assert client.models.retrieve("hello").id == "hello"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nope")


def test_the_request_id_of_the_caller_is_kept_if_sane(service: Service) -> None:
    url = f"{service.url}/v1/models"
    assert httpx.get(url, headers={"x-request-id": "abc-1"}).headers["x-request-id"] == "abc-1"
    assert httpx.get(url, headers={"x-request-id": "a b<script>"}).headers["x-request-id"] != "a b<script>"
