"""ChatRequest -> Converse body: one test per rule of the mapping; botocore's own model validates every body."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator

from adapters.converse import (
    FIRST_USER_TEXT,
    NO_OUTPUT,
    REDACTED,
    converse_body,
    tool_use_id,
)
from gateway.errors import InvalidRequest, Unsupported
from gateway.request import (
    ChatRequest,
    Image,
    Message,
    Part,
    Reasoning,
    Role,
    Sampling,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    text_message,
)

PNG = "data:image/png;base64,iVBORw0KGgo="
SHAPE = botocore.session.Session().get_service_model("bedrock-runtime").operation_model("ConverseStream").input_shape
WEATHER = Tool("get_weather", "Weather by city", {"type": "object", "properties": {"city": {"type": "string"}}})


def body(*messages: Message, **more: Any) -> dict[str, Any]:
    value = converse_body(ChatRequest("claude", messages, **more))
    report = ParamValidator().validate({"modelId": "claude"} | value, SHAPE)
    assert not report.has_errors(), report.generate_report()
    return value


def say(role: Role, *parts: Part) -> Message:
    return Message(role, parts)


def user(text: str) -> Message:
    return text_message(Role.USER, text)


def assistant(text: str) -> Message:
    return text_message(Role.ASSISTANT, text)


def roles(turns: Iterable[Mapping[str, Any]]) -> list[str]:
    return [turn["role"] for turn in turns]


def test_blank_turns_are_dropped_and_the_rest_alternates() -> None:
    sent = body(
        text_message(Role.SYSTEM, "Be kind."),
        user(""),
        assistant(" "),
        user("a"),
        user("b"),
        assistant("\n"),
    )
    assert sent == {
        "system": [{"text": "Be kind."}],
        "messages": [{"role": "user", "content": [{"text": "a"}, {"text": "b"}]}],
    }


@pytest.mark.parametrize(
    "messages", [(user(" "), assistant("\n")), (text_message(Role.SYSTEM, "only"),), (say(Role.USER),)]
)
def test_nothing_but_blanks_is_the_callers_fault(messages: tuple[Message, ...]) -> None:
    with pytest.raises(InvalidRequest, match="no text"):
        converse_body(ChatRequest("claude", messages))


def test_a_whole_conversation_with_an_image_and_two_tool_calls() -> None:
    sent = body(
        text_message(Role.SYSTEM, "You are terse."),
        text_message(Role.SYSTEM, "Answer in Korean."),
        say(Role.USER, Text("Weather in Seoul and Busan?"), Image(PNG)),
        say(
            Role.ASSISTANT,
            Text("Checking."),
            ToolCall("call_1", "get_weather", '{"city":"Seoul"}'),
            ToolCall("call_2", "get_weather", '{"city":"Busan"}'),
        ),
        say(Role.TOOL, ToolResult("call_1", "20C")),
        say(Role.TOOL, ToolResult("call_2", "22C")),
        user("Be brief."),
        tools=(WEATHER,),
        tool_choice="auto",
        sampling=Sampling(max_tokens=256, temperature=0.5, top_p=0.9, stop=("END", "")),
    )

    def use(call: str, city: str) -> dict[str, Any]:
        return {"toolUse": {"toolUseId": call, "name": "get_weather", "input": {"city": city}}}

    def result(call: str, text: str) -> dict[str, Any]:
        return {"toolResult": {"toolUseId": call, "content": [{"text": text}], "status": "success"}}

    assert sent["system"] == [{"text": "You are terse."}, {"text": "Answer in Korean."}]
    assert roles(sent["messages"]) == ["user", "assistant", "user"]
    assert sent["messages"][0]["content"] == [
        {"text": "Weather in Seoul and Busan?"},
        {"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}},
    ]
    assert sent["messages"][1]["content"] == [{"text": "Checking."}, use("call_1", "Seoul"), use("call_2", "Busan")]
    assert sent["messages"][2]["content"] == [result("call_1", "20C"), result("call_2", "22C"), {"text": "Be brief."}]
    assert sent["inferenceConfig"] == {"maxTokens": 256, "temperature": 0.5, "topP": 0.9, "stopSequences": ["END"]}
    assert sent["toolConfig"]["toolChoice"] == {"auto": {}}
    assert sent["toolConfig"]["tools"][0]["toolSpec"]["inputSchema"] == {"json": WEATHER.parameters}


def test_results_come_before_text_of_the_same_turn() -> None:
    call = say(Role.ASSISTANT, ToolCall("c", "f", ""))
    sent = body(user("go"), call, user("and?"), say(Role.TOOL, ToolResult("c", " ")))
    assert sent["messages"][1]["content"] == [{"toolUse": {"toolUseId": "c", "name": "f", "input": {}}}]
    result, text = sent["messages"][2]["content"]
    assert result["toolResult"]["content"] == [{"text": NO_OUTPUT}]
    assert text == {"text": "and?"}


def test_a_conversation_that_the_assistant_begins_gets_a_user_turn() -> None:
    sent = body(assistant("Welcome!"), user("hi"))
    assert roles(sent["messages"]) == ["user", "assistant", "user"]
    assert sent["messages"][0]["content"] == [{"text": FIRST_USER_TEXT}]


def test_a_prefill_loses_its_trailing_space() -> None:
    assert body(user("hi"), assistant("I think \n"))["messages"][1]["content"] == [{"text": "I think"}]


def test_signed_reasoning_goes_back_and_unsigned_does_not() -> None:
    turn = say(
        Role.ASSISTANT, Reasoning("why", "c2ln"), Reasoning("", REDACTED + "YmxvYg=="), Reasoning("loose"), Text("x")
    )
    content = body(user("hi"), turn, user("more"))["messages"][1]["content"]
    assert content == [
        {"reasoningContent": {"reasoningText": {"text": "why", "signature": "c2ln"}}},
        {"reasoningContent": {"redactedContent": "YmxvYg=="}},
        {"text": "x"},
    ]


@pytest.mark.parametrize(("media", "written"), [("jpeg", "jpeg"), ("jpg", "jpeg"), ("gif", "gif"), ("WEBP", "webp")])
def test_images_travel_by_format(media: str, written: str) -> None:
    image = body(say(Role.USER, Image(f"data:image/{media};base64,aGk=")))["messages"][0]["content"][0]["image"]
    assert image == {"format": written, "source": {"bytes": "aGk="}}


@pytest.mark.parametrize("url", ["https://example.com/a.png", "data:image/bmp;base64,aGk=", "data:image/png,raw"])
def test_images_that_bedrock_cannot_take_are_refused_with_a_sentence(url: str) -> None:
    with pytest.raises(Unsupported, match=r"Bedrock takes .*images"):
        converse_body(ChatRequest("claude", (say(Role.USER, Image(url)),)))


def test_a_broken_image_is_the_callers_fault() -> None:
    with pytest.raises(InvalidRequest, match="base64"):
        converse_body(ChatRequest("claude", (say(Role.USER, Image("data:image/png;base64,a!")),)))


@pytest.mark.parametrize("arguments", ["{", "[1]", '"x"'])
def test_arguments_that_are_no_json_object_are_refused(arguments: str) -> None:
    turn = say(Role.ASSISTANT, ToolCall("c", "f", arguments))
    with pytest.raises(InvalidRequest, match="'c'"):
        converse_body(ChatRequest("claude", (user("hi"), turn)))


def test_call_ids_are_made_fit_and_stay_apart() -> None:
    ids = ["call_1", "ünïcode", "unicode!", "unicode?", "x" * 65, "x" * 64 + "y", ""]
    fit = [tool_use_id(call_id) for call_id in ids]
    assert fit[0] == "call_1"
    assert len(set(fit)) == len(ids)
    assert all(0 < len(call_id) <= 64 and call_id.isascii() and "!" not in call_id for call_id in fit)
    assert fit == [tool_use_id(call_id) for call_id in ids]


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("required", {"any": {}}),
        ("auto", {"auto": {}}),
        ("get_weather", {"tool": {"name": "get_weather"}}),
        (None, None),
    ],
)
def test_tool_choices(choice: str | None, sent: object) -> None:
    assert body(user("hi"), tools=(WEATHER,), tool_choice=choice)["toolConfig"].get("toolChoice") == sent


def test_no_tools_are_sent_for_choice_none_unless_the_history_needs_them() -> None:
    history = (user("hi"), say(Role.ASSISTANT, ToolCall("c", "f", "{}")), say(Role.TOOL, ToolResult("c", "ok")))
    assert "toolConfig" not in body(user("hi"), tools=(WEATHER,), tool_choice="none")
    assert body(*history, tools=(WEATHER,), tool_choice="none")["toolConfig"].keys() == {"tools"}
    assert [tool["toolSpec"]["name"] for tool in body(*history)["toolConfig"]["tools"]] == ["f"]


def test_a_tool_without_schema_or_description() -> None:
    (tool,) = body(user("hi"), tools=(Tool("now", "", None, True),))["toolConfig"]["tools"]
    schema = {"json": {"type": "object", "properties": {}}}
    assert tool["toolSpec"] == {"name": "now", "inputSchema": schema, "strict": True}


def test_temperature_is_fitted_to_the_scale() -> None:
    assert body(user("hi"), sampling=Sampling(temperature=1.7))["inferenceConfig"] == {"temperature": 1.0}


def test_vendor_fields_travel_and_foreign_ones_do_not() -> None:
    extra = {
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "additionalModelRequestFields": {"top_k": 9},
        "requestMetadata": {"team": "a"},
        "logit_bias": {},
    }
    sent = body(user("hi"), extra=extra, sampling=Sampling(top_k=5, seed=1, presence_penalty=0.5))
    assert sent["additionalModelRequestFields"] == {"thinking": extra["thinking"], "top_k": 9}
    assert sent["requestMetadata"] == {"team": "a"}
    assert sent.keys() == {"messages", "additionalModelRequestFields", "requestMetadata"}


def test_json_schema_and_effort_become_output_config() -> None:
    schema = {"type": "object", "properties": {"도시": {"type": "string"}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "city", "schema": schema, "strict": True}}
    output = body(user("hi"), response_format=wanted, reasoning_effort="low")["outputConfig"]
    written = output["textFormat"]["structure"]["jsonSchema"]
    assert json.loads(written["schema"]) == schema
    assert (written["name"], output["effort"]) == ("city", "low")


def test_response_formats_that_bedrock_lacks_are_refused() -> None:
    assert "outputConfig" not in body(user("hi"), response_format={"type": "text"})
    with pytest.raises(Unsupported, match="json_object"):
        converse_body(ChatRequest("claude", (user("hi"),), response_format={"type": "json_object"}))
    with pytest.raises(InvalidRequest, match="schema"):
        converse_body(ChatRequest("claude", (user("hi"),), response_format={"type": "json_schema"}))
