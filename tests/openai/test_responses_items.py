"""Input items -> messages: who belongs together, and what goes back to the provider unchanged."""

from __future__ import annotations

from gateway.events import Finished, FinishReason, ReasoningDelta, Started, TextDelta, ToolCallDelta, ToolCallStart
from gateway.request import Image, Message, Reasoning, Role, Text, ToolCall, ToolResult
from wires.openai.responses.encoder import ResponseEncoder
from wires.openai.responses.items import parse_items, text_item
from wires.openai.responses.request import ResponseBody, parse, template


def test_an_assistants_thought_text_and_calls_are_one_message() -> None:
    items = [
        text_item("weather?"),
        {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "proof"},
        {"role": "assistant", "content": "I look."},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": ""},
        {"type": "function_call", "call_id": "b", "name": "g", "arguments": '{"x":1}'},
        {"type": "function_call_output", "call_id": "a", "output": "1"},
        {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "2"}]},
        {"role": "assistant", "content": "Done."},
        {"role": "assistant", "content": "Really."},
    ]
    assert parse_items(items) == (
        Message(Role.USER, (Text("weather?"),)),
        Message(
            Role.ASSISTANT,
            (Reasoning("", "proof"), Text("I look."), ToolCall("a", "f", "{}"), ToolCall("b", "g", '{"x":1}')),
        ),
        Message(Role.TOOL, (ToolResult("a", "1"),)),
        Message(Role.TOOL, (ToolResult("b", "2"),)),
        Message(Role.ASSISTANT, (Text("Done."),)),
        Message(Role.ASSISTANT, (Text("Really."),)),
    )


def test_an_output_goes_back_as_the_input_it_came_from() -> None:
    encoder = ResponseEncoder(template(ResponseBody(model="m", input="x")), encrypted=True)
    for event in (
        Started("1", "m", 1),
        ReasoningDelta("hm"),
        ReasoningDelta("", "proof"),
        TextDelta("I look."),
        ToolCallStart(0, "a", "f"),
        ToolCallDelta(0, '{"x":1}'),
        Finished(FinishReason.TOOL_CALLS),
    ):
        list(encoder.encode(event))
    parts = (Reasoning("hm", "proof"), Text("I look."), ToolCall("a", "f", '{"x":1}'))
    assert parse_items(encoder.response()["output"]) == (Message(Role.ASSISTANT, parts),)


def test_every_field_reaches_the_provider() -> None:
    body = ResponseBody.model_validate(
        {
            "model": "m",
            "instructions": "be short",
            "input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:x", "detail": "low"}]}],
            "max_output_tokens": 7,
            "temperature": 0.5,
            "top_p": 0.9,
            "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}],
            "tool_choice": {"type": "function", "name": "f"},
            "parallel_tool_calls": False,
            "text": {"format": {"type": "json_schema", "name": "s", "schema": {"type": "object"}}, "verbosity": "low"},
            "reasoning": {"effort": "high"},
            "metadata": {"a": "b"},
            "service_tier": "flex",
            "user": "u",
        }
    )
    request = parse(body, history=[text_item("before")])
    assert [message.role for message in request.messages] == [Role.SYSTEM, Role.USER, Role.USER]
    assert request.messages[2].parts == (Image("data:x", "low"),)
    assert (request.sampling.max_tokens, request.sampling.temperature, request.sampling.top_p) == (7, 0.5, 0.9)
    assert [(tool.name, tool.strict) for tool in request.tools] == [("f", True)]
    assert (request.tool_choice, request.parallel_tool_calls) == ("f", False)
    assert request.response_format == {
        "type": "json_schema",
        "json_schema": {"name": "s", "schema": {"type": "object"}},
    }
    assert (request.reasoning_effort, request.user) == ("high", "u")
    assert request.extra == {"service_tier": "flex", "metadata": {"a": "b"}, "verbosity": "low"}
