"""The Responses API's frames for every order of events, each valid for the official types."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from gateway.errors import RateLimited, UpstreamError
from gateway.events import (
    Failed,
    Finished,
    FinishReason,
    ReasoningDelta,
    Started,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from wires.openai.responses.encoder import ResponseEncoder
from wires.openai.responses.request import ResponseBody, template

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
STARTED = Started("1", "m", 1)
DONE = Finished(FinishReason.STOP, Usage(3, 5, reasoning_tokens=2))
CALLS: list[StreamEvent] = [
    ToolCallStart(0, "a", "first"),
    ToolCallDelta(0, '{"x"'),
    ToolCallStart(1, "b", "second"),
    ToolCallDelta(0, ":1}"),
    ToolCallStart(2, "c", "third"),
    ToolCallDelta(1, '{"y":2}'),
    Finished(FinishReason.TOOL_CALLS),
]


def encoder(*, encrypted: bool = False, after: int = -1, **body: Any) -> ResponseEncoder:
    parsed = ResponseBody.model_validate({"model": "m", "input": "x", **body})
    return ResponseEncoder(template(parsed), encrypted=encrypted, after=after)


def frames(events: Iterable[StreamEvent], encoder: ResponseEncoder) -> list[dict[str, Any]]:
    """The bodies of all frames, after what every frame must be is checked."""
    bodies = []
    for event in (STARTED, *events):
        for frame in encoder.encode(event):
            name, data = frame.decode().removesuffix("\n\n").split("\n")
            body = json.loads(data.removeprefix("data: "))
            assert name == f"event: {body['type']}"
            EVENT.validate_json(data.removeprefix("data: "), strict=True)
            bodies.append(body)
    return bodies


def types(bodies: list[dict[str, Any]]) -> list[str]:
    return [body["type"].removeprefix("response.") for body in bodies]


def test_text_has_the_events_of_the_contract_in_their_order() -> None:
    bodies = frames([TextDelta("Hel"), TextDelta("lo"), DONE], encoder())
    assert types(bodies) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [body["sequence_number"] for body in bodies] == list(range(len(bodies)))
    response = bodies[-1]["response"]
    assert response["output"][0]["content"][0]["text"] == "Hello"
    assert response["usage"]["total_tokens"] == 8
    assert response["usage"]["output_tokens_details"]["reasoning_tokens"] == 2


def test_interleaved_calls_stay_apart_and_are_json() -> None:
    """Case C5."""
    bodies = frames(CALLS, encoder())
    joined: dict[int, str] = {}
    for body in bodies:
        if body["type"] == "response.function_call_arguments.delta":
            joined[body["output_index"]] = joined.get(body["output_index"], "") + body["delta"]
    assert joined == {0: '{"x":1}', 1: '{"y":2}', 2: "{}"}
    done = [body["arguments"] for body in bodies if body["type"] == "response.function_call_arguments.done"]
    assert done == list(joined.values())
    output = bodies[-1]["response"]["output"]
    assert [(item["name"], item["call_id"], item["arguments"], item["status"]) for item in output] == [
        ("first", "a", '{"x":1}', "completed"),
        ("second", "b", '{"y":2}', "completed"),
        ("third", "c", "{}", "completed"),
    ]


def test_reasoning_is_an_item_of_its_own_before_the_text() -> None:
    """Case C7."""
    events: list[StreamEvent] = [
        ReasoningDelta("Let "),
        ReasoningDelta("me."),
        ReasoningDelta("", "proof"),
        TextDelta("42"),
        DONE,
    ]
    bodies = frames(events, encoder())
    assert types(bodies)[2:9] == [
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
    ]
    thought, message = bodies[-1]["response"]["output"]
    assert thought["content"] == [{"type": "reasoning_text", "text": "Let me."}]
    assert "encrypted_content" not in thought
    assert message["content"][0]["text"] == "42"


def test_a_summary_that_was_asked_for_holds_the_reasoning() -> None:
    events: list[StreamEvent] = [ReasoningDelta("Let me."), ReasoningDelta("", "proof"), TextDelta("42"), DONE]
    bodies = frames(events, encoder(encrypted=True, reasoning={"summary": "auto"}))
    assert types(bodies)[2:8] == [
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
    ]
    thought = bodies[-1]["response"]["output"][0]
    assert thought["summary"] == [{"type": "summary_text", "text": "Let me."}]
    assert thought["encrypted_content"] == "proof"


def test_text_around_a_call_is_two_messages() -> None:
    events: list[StreamEvent] = [
        TextDelta("a"),
        ToolCallStart(0, "c", "f"),
        TextDelta("b"),
        ToolCallDelta(0, "{}"),
        DONE,
    ]
    output = frames(events, encoder())[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["message", "function_call", "message"]
    assert [item["content"][0]["text"] for item in output if item["type"] == "message"] == ["a", "b"]


@pytest.mark.parametrize(
    ("reason", "why"), [(FinishReason.LENGTH, "max_output_tokens"), (FinishReason.CONTENT_FILTER, "content_filter")]
)
def test_a_cut_answer_is_incomplete_and_says_why(reason: FinishReason, why: str) -> None:
    last = frames([TextDelta("a"), Finished(reason)], encoder())[-1]
    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": why}
    assert last["response"]["output"][0]["status"] == "incomplete"


@pytest.mark.parametrize(
    ("error", "code"), [(UpstreamError("It broke."), "server_error"), (RateLimited("Slow."), "rate_limit_exceeded")]
)
def test_a_failure_keeps_the_partial_text_and_says_why(error: Any, code: str) -> None:
    """Case R1."""
    bodies = frames([TextDelta("a"), Failed(error)], encoder())
    last = bodies[-1]["response"]
    assert types(bodies).count("completed") == 0
    assert (bodies[-1]["type"], last["status"], last["error"]["code"]) == ("response.failed", "failed", code)
    assert (last["output"][0]["status"], last["output"][0]["content"][0]["text"]) == ("incomplete", "a")


def test_a_cancelled_response_says_so() -> None:
    last = frames([TextDelta("a"), Finished(FinishReason.CANCELLED)], encoder())[-1]
    assert (last["type"], last["response"]["status"]) == ("response.incomplete", "cancelled")


def test_an_empty_answer_is_a_completed_response() -> None:
    bodies = frames([DONE], encoder())
    assert types(bodies) == ["created", "in_progress", "completed"]
    assert bodies[-1]["response"]["output"] == []


def test_going_on_after_any_frame_gives_exactly_the_rest() -> None:
    events: list[StreamEvent] = [ReasoningDelta("r"), TextDelta("a"), TextDelta("b"), *CALLS]
    whole = frames(events, encoder())
    for after in range(-1, len(whole)):
        assert frames(events, encoder(after=after)) == whole[after + 1 :]


def test_the_response_is_valid_at_every_moment() -> None:
    made = encoder(
        tools=[{"type": "function", "name": "f", "parameters": {}}],
        tool_choice={"type": "function", "name": "f"},
        text={"format": {"type": "json_schema", "name": "s", "schema": {}}, "verbosity": "low"},
        metadata={"a": "b"},
        reasoning={"effort": "low"},
        temperature=0.5,
    )
    for event in (STARTED, ReasoningDelta("r"), TextDelta("a"), *CALLS):
        for _ in made.encode(event):
            pass
        Response.model_validate_json(json.dumps(made.response()), strict=True)
