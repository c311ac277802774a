"""The session's state machine: items, responses and errors."""

from __future__ import annotations

import json

import pytest

from gateway.errors import UpstreamError
from gateway.events import (
    Failed,
    Finished,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from gateway.request import Role, ToolCall, ToolResult
from tests.realtime.sessions import kinds
from tests.realtime.stage import FINISHED, Stage
from wires.openai.realtime.outgoing import HangUp, Respond, Stop, Transcribe

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


@pytest.mark.parametrize(
    ("message", "code", "param"),
    [
        ("{", "invalid_json", None),
        ("[1]", "invalid_json", None),
        ('"\\ud800"', "invalid_json", None),
        ("[" * 100_000, "invalid_json", None),
        ('{"event_id": "e1"}', "missing_required_parameter", "type"),
        ('{"type": "nope", "event_id": "e1"}', "invalid_value", "type"),
        ('{"type": "conversation.item.retrieve", "event_id": "e1"}', "missing_required_parameter", "item_id"),
        ('{"type": "input_audio_buffer.append", "audio": "%", "event_id": "e1"}', "invalid_value", "audio"),
        ('{"type": "input_audio_buffer.append", "audio": 1, "event_id": "e1"}', "invalid_value", "audio"),
        ('{"type": "conversation.item.delete", "item_id": "no", "event_id": "e1"}', "item_not_found", "item_id"),
        ('{"type": "input_audio_buffer.commit", "event_id": "e1"}', "input_audio_buffer_commit_empty", None),
        ('{"type": "output_audio_buffer.clear", "event_id": "e1"}', "unsupported", "type"),
        ('{"type": "response.cancel", "event_id": "e1"}', "response_cancel_not_active", None),
    ],
)
def test_what_is_wrong_is_an_error_that_names_its_cause(message: str, code: str, param: str | None) -> None:
    (event,) = Stage().send(message)
    error = event["error"]
    assert (event["type"], error["type"]) == ("error", "invalid_request_error")
    assert (error["code"], error["param"]) == (code, param)
    assert error["event_id"] == ("e1" if "e1" in message else None)


def test_a_second_response_is_refused_and_the_first_completes() -> None:
    stage = Stage(output_modalities=["text"])
    stage.write("hi")
    order = stage.respond()
    (refused,) = stage.say("response.create", event_id="second")
    assert refused["error"]["code"] == "conversation_already_has_active_response"
    assert refused["error"]["event_id"] == "second"
    assert not stage.has(Respond)
    events = stage.play(order, TextDelta("Hello."), FINISHED)
    assert events[-1]["response"]["status"] == "completed"


def test_a_cancelled_response_ends_in_order_and_says_nothing_more() -> None:
    stage = Stage(output_modalities=["text"])
    stage.write("hi")
    order = stage.respond()
    stage.play(order, TextDelta("Hel"))
    events = stage.say("response.cancel")
    assert stage.order(Stop).response_id == order.response_id
    assert kinds(events) == [
        "response.output_text.done",
        "response.content_part.done",
        "conversation.item.done",
        "response.output_item.done",
        "response.done",
    ]
    response = events[-1]["response"]
    assert response["status"] == "cancelled"
    assert response["status_details"] == {"type": "cancelled", "reason": "client_cancelled"}
    assert response["output"][0]["status"] == "incomplete"
    assert stage.play(order, TextDelta("lo"), FINISHED) == []
    assert stage.say("response.cancel")[0]["error"]["code"] == "response_cancel_not_active"


@pytest.mark.parametrize(
    ("terminal", "status", "details"),
    [
        (Finished(FinishReason.LENGTH), "incomplete", {"type": "incomplete", "reason": "max_output_tokens"}),
        (Finished(FinishReason.CONTENT_FILTER), "incomplete", {"type": "incomplete", "reason": "content_filter"}),
        (
            Failed(UpstreamError("It broke.")),
            "failed",
            {"type": "failed", "error": {"type": "server_error", "code": "upstream_error", "message": "It broke."}},
        ),
    ],
)
def test_how_a_response_can_end(terminal: Finished | Failed, status: str, details: dict[str, object]) -> None:
    stage = Stage(output_modalities=["text"])
    stage.write("hi")
    response = stage.play(stage.respond(), ReasoningDelta("hm"), TextDelta("Hel"), terminal)[-1]["response"]
    assert (response["status"], response["status_details"]) == (status, details)
    assert response["output"][0]["status"] == "incomplete"
    assert stage.history()[-1] == ("assistant", "Hel")


def test_tool_calls_out_and_their_outputs_in() -> None:
    stage = Stage(tools=[WEATHER], tool_choice={"type": "function", "name": "get_weather"})
    stage.write("Weather in Seoul?")
    order = stage.respond()
    assert (order.chat.tools[0].name, order.chat.tool_choice) == ("get_weather", "get_weather")
    events = stage.play(
        order,
        ToolCallStart(0, "call_1", "get_weather"),
        ToolCallDelta(0, '{"city":'),
        ToolCallDelta(0, '"Seoul"}'),
        Finished(FinishReason.TOOL_CALLS, Usage(5, 7)),
    )
    assert kinds(events) == [
        "response.output_item.added",
        "conversation.item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "conversation.item.done",
        "response.output_item.done",
        "response.done",
    ]
    assert events[0]["item"]["arguments"] == ""
    (call,) = events[-1]["response"]["output"]
    assert (call["call_id"], call["arguments"]) == ("call_1", '{"city":"Seoul"}')
    # A call without its output is not put to a model, which would refuse it.
    assert stage.history() == [("user", "Weather in Seoul?")]
    stage.write("Quick!")
    output = {"type": "function_call_output", "call_id": "call_1", "output": "21"}
    stage.say("conversation.item.create", item=output)
    messages = stage.respond().chat.messages
    assert [message.role for message in messages] == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.USER]
    assert messages[1].parts == (ToolCall("call_1", "get_weather", '{"city":"Seoul"}'),)
    assert messages[2].parts == (ToolResult("call_1", "21"),)


def test_an_output_needs_its_call() -> None:
    output = {"type": "function_call_output", "call_id": "call_9", "output": "21"}
    assert Stage().say("conversation.item.create", item=output)[0]["error"]["code"] == "invalid_tool_call_id"


def test_items_go_where_they_are_put() -> None:
    stage = Stage()
    first = {"type": "message", "id": "one", "role": "user", "content": [{"type": "input_text", "text": "1"}]}
    assert kinds(stage.say("conversation.item.create", item=first)) == [
        "conversation.item.added",
        "conversation.item.done",
    ]
    system = {"type": "message", "id": "zero", "role": "system", "content": [{"type": "input_text", "text": "0"}]}
    added = stage.say("conversation.item.create", item=system, previous_item_id="root")[0]
    assert added["previous_item_id"] is None
    third = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "3"}]}
    assert stage.say("conversation.item.create", item=third)[0]["previous_item_id"] == "one"
    second = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "2"}]}
    stage.say("conversation.item.create", item=second, previous_item_id="one")
    assert [text for _, text in stage.history()] == ["0", "1", "2", "3"]
    assert stage.say("conversation.item.create", item=first)[0]["error"]["code"] == "invalid_value"
    missing = stage.say("conversation.item.create", item=third, previous_item_id="no")[0]
    assert missing["error"]["code"] == "item_not_found"
    assert stage.say("conversation.item.retrieve", item_id="one")[0]["item"]["content"][0]["text"] == "1"
    assert stage.say("conversation.item.delete", item_id="one")[0]["item_id"] == "one"
    assert [text for _, text in stage.history()] == ["0", "2", "3"]


def test_assistant_audio_cannot_be_created() -> None:
    item = {"type": "message", "role": "assistant", "content": [{"type": "audio", "audio": "AAAA"}]}
    assert Stage().say("conversation.item.create", item=item)[0]["error"]["code"] == "invalid_value"


def test_a_response_out_of_band_leaves_the_conversation_alone() -> None:
    stage = Stage(output_modalities=["text"], instructions="Be brief.")
    stage.write("hi")
    running = stage.respond()
    reference = stage.all_events[-2]["item"]["id"] if "item" in stage.all_events[-2] else ""
    own = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Classify."}]}
    side = stage.respond(
        conversation="none",
        metadata={"topic": "class"},
        instructions="Say one word.",
        input=[{"type": "item_reference", "id": reference}, own],
    )
    assert [message.text for message in side.chat.messages] == ["Say one word.", "hi", "Classify."]
    events = stage.play(side, TextDelta("greeting"), FINISHED)
    assert "conversation.item.added" not in kinds(events)
    response = events[-1]["response"]
    assert (response["conversation_id"], response["metadata"]) == (None, {"topic": "class"})
    assert stage.play(running, TextDelta("Hello."), FINISHED)[-1]["response"]["conversation_id"] is not None
    assert stage.history() == [("system", "Be brief."), ("user", "hi"), ("assistant", "Hello.")]
    empty = stage.respond(conversation="none", input=[])
    assert [message.role for message in empty.chat.messages] == [Role.SYSTEM]


def test_responses_out_of_band_are_bounded() -> None:
    stage = Stage()
    for _ in range(4):
        stage.respond(conversation="none")
    assert stage.say("response.create", response={"conversation": "none"})[0]["error"]["code"] == "rate_limit_exceeded"


def test_a_response_has_its_own_settings() -> None:
    stage = Stage(instructions="x", max_output_tokens=100)
    order = stage.respond(
        instructions="y", output_modalities=["text"], max_output_tokens=7, tools=[WEATHER], tool_choice="required"
    )
    assert order.speech is None
    assert order.chat.sampling.max_tokens == 7
    assert order.chat.tool_choice == "required"
    assert stage.events[0]["response"]["max_output_tokens"] == 7
    stage.play(order, FINISHED)
    assert stage.respond().chat.sampling.max_tokens == 100


def test_truncating_keeps_what_was_heard() -> None:
    stage = Stage()
    stage.write("hi")
    order = stage.respond()
    stage.speak(order, "One two three four. ", 2.0)
    stage.speak(order, "Five six seven eight.", 2.0)
    item_id = stage.play(order, FINISHED)[-1]["response"]["output"][0]["id"]
    where = {"item_id": item_id, "content_index": 0}
    assert stage.say("conversation.item.truncate", **where, audio_end_ms=9_000)[0]["error"]["param"] == "audio_end_ms"
    (event,) = stage.say("conversation.item.truncate", **where, audio_end_ms=1_000)
    assert (event["type"], event["audio_end_ms"]) == ("conversation.item.truncated", 1_000)
    retrieved = stage.say("conversation.item.retrieve", item_id=item_id)[0]["item"]
    assert retrieved["content"] == [{"type": "output_audio", "transcript": "One two"}]
    assert stage.history()[-1] == ("assistant", "One two")


def test_only_spoken_answers_can_be_truncated() -> None:
    stage = Stage()
    stage.write("hi")
    item_id = stage.events[0]["item"]["id"]
    event = stage.say("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=0)[0]
    assert event["error"]["code"] == "invalid_value"


def test_what_was_played_is_what_is_remembered_of_a_cancelled_answer() -> None:
    stage = Stage()
    stage.write("hi")
    order = stage.respond()
    stage.speak(order, "One two three four five six seven eight.", 4.0)
    stage.now += 2.0
    done = stage.say("response.cancel")[-1]["response"]
    assert done["output"][0]["content"] == [{"type": "output_audio", "transcript": "One two three four"}]
    assert stage.history()[-1] == ("assistant", "One two three four")


def test_audio_in_an_item_is_written_down_before_it_is_answered() -> None:
    stage = Stage(audio={"input": {"transcription": None}})
    item = {"type": "message", "role": "user", "content": [{"type": "input_audio", "audio": "AAAAAA=="}]}
    stage.say("conversation.item.create", item=item)
    assert not stage.has(Transcribe)
    created = stage.say("response.create")
    assert kinds(created) == ["response.created"]
    assert not stage.has(Respond)
    assert stage.transcribe(stage.order(Transcribe), TextDelta("Hello."), FINISHED) == []
    assert stage.order(Respond).chat.messages[-1].text == "Hello."


def test_a_session_ends_with_a_word() -> None:
    stage = Stage(lifetime=60)
    events = stage.expire()
    assert events[0]["error"]["code"] == "session_expired"
    assert stage.order(HangUp).code == 1000


def test_large_images_are_not_echoed() -> None:
    stage = Stage()
    image = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * 100_000}
    events = stage.say("conversation.item.create", item={"type": "message", "role": "user", "content": [image]})
    assert len(json.dumps(events)) < 10_000
