"""The chat-completions dialect: every server's bytes to the same events, and a request to its body."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from adapters.chat_completions import ChatCompletionDecoder, chat_body
from adapters.chat_http import EventPayloads, JsonPayloads
from gateway.config import ProviderRow
from gateway.errors import GatewayError, Truncated, UpstreamError
from gateway.events import (
    Delta,
    Finished,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from gateway.request import (
    ChatRequest,
    Image,
    Message,
    Role,
    Sampling,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    text_message,
)
from tests.upstreams import openai_streams as streams
from tests.upstreams.cutting import cut
from tests.upstreams.openai_streams import DONE, chunk, words

ROW = ProviderRow(name="up", type="openai")
cuts = st.lists(st.integers(min_value=0, max_value=5000), max_size=20)


def decode(pieces: list[bytes]) -> list[Delta | Finished]:
    payloads, decoder = EventPayloads(ROW), ChatCompletionDecoder(ROW)
    events: list[Delta | Finished] = [
        delta for piece in pieces for payload in payloads.feed(piece) for delta in decoder.feed(payload)
    ]
    return [*events, decoder.finish()]


def text(events: list[Any]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


@pytest.mark.parametrize("server", streams.SERVERS)
@settings(max_examples=25)
@given(places=cuts)
@example(places=list(range(5000)))
def test_every_server_says_the_same_however_it_is_cut(server: str, places: list[int]) -> None:
    events = decode(cut(streams.SERVERS[server], places))
    assert text(events) == streams.SAID
    assert events[-1] == Finished(FinishReason.STOP, Usage(input_tokens=9, output_tokens=3))
    assert all(isinstance(event, TextDelta) for event in events[:-1])


@given(places=cuts, lines=st.booleans())
def test_json_lines_and_a_whole_answer_say_the_same(places: list[int], lines: bool) -> None:
    payloads, decoder = JsonPayloads(ROW, lines=lines), ChatCompletionDecoder(ROW)
    pieces = cut(streams.LMI_LINES if lines else streams.WHOLE, places)
    whole = [payload for piece in pieces for payload in payloads.feed(piece)] + payloads.rest()
    deltas = [delta for payload in whole for delta in decoder.feed(payload)]
    assert text(deltas) == streams.SAID
    assert decoder.finish() == Finished(FinishReason.STOP, Usage(input_tokens=9, output_tokens=3))


@pytest.mark.parametrize("stream", streams.TOOL_STREAMS)
def test_two_tool_calls_stay_two_however_they_are_numbered(stream: str) -> None:
    events = decode([streams.TOOL_STREAMS[stream]])
    starts = [event for event in events if isinstance(event, ToolCallStart)]
    assert [(start.index, start.name) for start in starts] == [(0, "get_weather"), (1, "get_time")]
    assert all(start.call_id for start in starts)
    arguments = ["", ""]
    for event in events:
        if isinstance(event, ToolCallDelta):
            arguments[event.index] += event.arguments
    assert arguments == ['{"city":"Seoul"}', '{"zone":"KST"}']
    assert events[-1] == Finished(FinishReason.TOOL_CALLS)


def test_calls_without_an_id_get_one_of_their_own() -> None:
    ids = [
        event.call_id
        for _ in range(2)
        for event in decode([streams.NEITHER_INDEX_NOR_ID])
        if isinstance(event, ToolCallStart)
    ]
    assert len(set(ids)) == 4


def test_calls_of_a_whole_answer_stay_apart_without_an_id() -> None:
    same = b'{"index":0,"type":"function","function":{"name":"roll","arguments":{"sides":6}}}'
    body = b'{"choices":[{"message":{"content":null,"tool_calls":[%s,%s]},"finish_reason":"tool_calls"}]}'
    deltas = ChatCompletionDecoder(ROW).feed(body % (same, same))
    assert [type(delta) for delta in deltas] == [ToolCallStart, ToolCallDelta] * 2
    assert deltas[3] == ToolCallDelta(1, '{"sides":6}')


def test_an_index_tells_calls_of_one_name_and_id_apart() -> None:
    twice = streams.calls(*(streams.call(index, "{}", "call_1", "roll") for index in (0, 1)))
    starts = [event for event in decode([twice]) if isinstance(event, ToolCallStart)]
    assert [start.index for start in starts] == [0, 1]


def test_one_call_may_stand_without_its_list() -> None:
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    events = decode([chunk({"tool_calls": call}) + chunk({}, "tool_calls") + DONE])
    assert events[:2] == [ToolCallStart(0, "call_1", "f"), ToolCallDelta(0, "{}")]


def test_reasoning_is_apart_and_the_text_beside_it_is_kept() -> None:
    events = decode([streams.REASONING])
    assert "".join(event.text for event in events if isinstance(event, ReasoningDelta)) == "I think. So:"
    assert text(events) == "Answer"
    assert events[-1] == Finished(FinishReason.STOP, Usage(input_tokens=9, output_tokens=8, reasoning_tokens=5))


def test_content_may_come_in_parts() -> None:
    events = decode([chunk({"content": [{"type": "text", "text": "in "}, {"type": "text", "text": "parts"}]}, "stop")])
    assert text(events) == "in parts"


def test_a_second_choice_is_not_mixed_in() -> None:
    second = chunk({"content": "other"}).replace(b'"index":0', b'"index":1')
    events = decode([words(["one"]) + second + chunk({}, "stop") + DONE])
    assert text(events) == "one"


@pytest.mark.parametrize(
    ("said", "meant"),
    [("stop", "stop"), ("eos_token", "stop"), ("length", "length"), ("content_filter", "content_filter")],
)
def test_finish_reasons(said: str, meant: str) -> None:
    assert decode([chunk({"content": "x"}, said)])[-1] == Finished(FinishReason(meant))


@pytest.mark.parametrize("error", streams.ERRORS)
def test_an_error_in_the_stream_comes_after_the_text_and_has_its_status(error: str) -> None:
    body, status = streams.ERRORS[error]
    payloads, decoder = EventPayloads(ROW), ChatCompletionDecoder(ROW)
    said = []
    with pytest.raises(GatewayError) as raised:  # noqa: PT012 - what came before the error counts
        for payload in payloads.feed(words(["so ", "far"]) + body):
            said += decoder.feed(payload)
        decoder.finish()
    assert text(said) == "so far"
    assert (raised.value.status, raised.value.provider) == (status, "up")


def test_an_error_in_the_stream_never_quotes_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UP_KEY", "sk-canary-secret-1234")
    row = ProviderRow(name="up", type="openai", api_key_env="UP_KEY")
    with pytest.raises(UpstreamError) as raised:
        ChatCompletionDecoder(row).feed(b'{"error":{"message":"key sk-canary-secret-1234 broke"}}')
    assert raised.value.message == "Provider 'up' reported an error: key [secret] broke"


@pytest.mark.parametrize("end", [b"", chunk({"content": None}), b"data: {"], ids=["nothing", "no reason", "half"])
def test_an_end_without_a_marker_is_truncated(end: bytes) -> None:
    with pytest.raises(Truncated):
        decode([words(["so far"]) + end])


@pytest.mark.parametrize("payload", [b"{", b"[]", b'{"choices":[{"delta":{"content":"\xff"}}]}', b"[" * 100_000])
def test_what_is_no_chunk_is_an_upstream_error(payload: bytes) -> None:
    with pytest.raises(UpstreamError):
        ChatCompletionDecoder(ROW).feed(payload)


def test_a_plain_request_has_plain_text_and_asks_for_usage() -> None:
    request = ChatRequest("gpt", (Message(Role.USER, (Text("a"), Text("b"))),))
    assert chat_body(request) == {
        "model": "gpt",
        "messages": [{"role": "user", "content": "ab"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_a_callers_field_goes_along_but_not_in_place_of_ours() -> None:
    request = ChatRequest(
        "gpt",
        (text_message(Role.USER, "x"),),
        sampling=Sampling(max_tokens=5, top_k=40),
        extra={"model": "dearer", "stream": False, "min_p": 0.1},
    )
    body = chat_body(request, max_tokens_field="max_completion_tokens")
    assert (body["model"], body["stream"], body["min_p"], body["top_k"]) == ("gpt", True, 0.1, 40)
    assert body["max_completion_tokens"] == 5
    assert "max_tokens" not in body


def test_a_turn_with_tools_and_an_image() -> None:
    request = ChatRequest(
        "gpt",
        (
            Message(Role.USER, (Text("look"), Image("data:image/png;base64,AA==", "low"))),
            Message(Role.ASSISTANT, (ToolCall("call_1", "f", "{}"), ToolCall("call_2", "g", '{"a":1}'))),
            Message(Role.TOOL, (ToolResult("call_1", "one"), ToolResult("call_2", "two"))),
        ),
        tools=(Tool("f"), Tool("g", "does g", {"type": "object"}, strict=True)),
        tool_choice="g",
        parallel_tool_calls=True,
    )
    body = chat_body(request)
    assert body["messages"] == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                {"id": "call_2", "type": "function", "function": {"name": "g", "arguments": '{"a":1}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "one"},
        {"role": "tool", "tool_call_id": "call_2", "content": "two"},
    ]
    assert body["tools"][1]["function"] == {
        "name": "g",
        "description": "does g",
        "parameters": {"type": "object"},
        "strict": True,
    }
    assert body["tool_choice"] == {"type": "function", "function": {"name": "g"}}
