"""The session object: what an update changes and what it must not."""

from __future__ import annotations

import pytest

from tests.realtime.stage import FINISHED, Stage

TOOL = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}


def update(stage: Stage, **session: object) -> dict[str, object]:
    (event,) = stage.say("session.update", event_id="e1", session={"type": "realtime", **session})
    found = event["session"] if event["type"] == "session.updated" else event["error"]
    return dict(found)


def test_an_update_changes_only_what_it_names() -> None:
    stage = Stage(instructions="Be brief.")
    session = update(stage, audio={"input": {"turn_detection": {"threshold": 0.7}}, "output": {"speed": 1.25}})
    assert session["instructions"] == "Be brief."
    audio = session["audio"]
    assert isinstance(audio, dict)
    assert audio["input"]["turn_detection"]["threshold"] == 0.7
    assert audio["input"]["turn_detection"]["silence_duration_ms"] == 500
    assert audio["output"]["speed"] == 1.25
    assert audio["output"]["format"] == {"type": "audio/pcm", "rate": 24000}


def test_null_clears_and_empty_values_clear() -> None:
    stage = Stage(instructions="x", tools=[TOOL], audio={"input": {"transcription": {"model": "whisper-1"}}})
    session = update(stage, instructions="", tools=[], audio={"input": {"turn_detection": None, "transcription": None}})
    assert (session["instructions"], session["tools"]) == ("", [])
    audio = session["audio"]
    assert isinstance(audio, dict)
    assert audio["input"]["turn_detection"] is None
    assert audio["input"]["transcription"] is None


def test_another_type_replaces_the_whole_object() -> None:
    stage = Stage(audio={"input": {"turn_detection": {"type": "server_vad", "threshold": 0.9}}})
    audio = update(stage, audio={"input": {"turn_detection": {"type": "semantic_vad"}}})["audio"]
    assert isinstance(audio, dict)
    assert audio["input"]["turn_detection"] == {
        "type": "semantic_vad",
        "eagerness": "auto",
        "create_response": True,
        "interrupt_response": True,
    }
    audio = update(stage, audio={"input": {"format": {"type": "audio/pcmu"}}})["audio"]
    assert isinstance(audio, dict)
    assert audio["input"]["format"] == {"type": "audio/pcmu"}


def test_the_model_cannot_be_changed_and_what_agents_send_is_taken() -> None:
    session = update(Stage(), model="gpt-realtime", tracing="auto", audio={"input": {"noise_reduction": None}})
    assert (session["model"], session["tracing"]) == ("echo", "auto")


@pytest.mark.parametrize(
    ("session", "code", "param"),
    [
        ({"type": None}, "missing_required_parameter", "session.type"),
        ({"type": "transcription"}, "invalid_value", "session.type"),
        ({"modalities": ["text"]}, "unknown_parameter", "session.modalities"),
        ({"output_modalities": ["text", "audio"]}, "invalid_value", "session.output_modalities"),
        ({"max_output_tokens": 0}, "invalid_value", None),
        ({"audio": {"input": {"format": {"type": "audio/pcm", "rate": 16000}}}}, "invalid_value", None),
        ({"audio": {"output": {"speed": 3}}}, "invalid_value", "session.audio.output.speed"),
        ({"prompt": {"id": "pmpt_1"}}, "unsupported", "session.prompt"),
    ],
)
def test_a_wrong_update_is_an_error_and_changes_nothing(session: dict[str, object], code: str, param: str) -> None:
    stage = Stage(instructions="kept")
    error = update(stage, **{"instructions": "lost", **session})
    assert (error["code"], error["event_id"]) == (code, "e1")
    if param is not None:
        assert error["param"] == param
    assert update(stage)["instructions"] == "kept"


def test_the_voice_is_fixed_once_it_was_heard() -> None:
    stage = Stage(voices=("alloy", "ash"))
    assert update(stage, audio={"output": {"voice": "nobody"}})["code"] == "voice_not_found"
    assert "audio" in update(stage, audio={"output": {"voice": "alloy"}})
    stage.write("hi")
    order = stage.respond()
    stage.speak(order, "Hello.", 0.5)
    stage.play(order, FINISHED)
    assert update(stage, audio={"output": {"voice": "ash"}})["code"] == "cannot_update_voice"
    assert "audio" in update(stage, audio={"output": {"voice": "alloy"}})
