"""Sessions that only listen (`?intent=transcription`), and what a caller is told of its limits."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.realtime import ClientSecretCreateResponse

from gateway.errors import UpstreamError
from gateway.events import Failed, Finished, FinishReason, TextDelta
from tests.conftest import scripted_config
from tests.realtime.conftest import QUESTION, silence
from tests.realtime.sessions import check, kinds, realtime
from tests.realtime.stage import SECOND, Stage
from tests.realtime.test_voice import right
from tests.running import Service, running
from wires.openai.realtime.outgoing import Respond, Transcribe

STOP = Finished(FinishReason.STOP)


def test_its_session_has_the_input_alone() -> None:
    session = Stage(type="transcription").all_events[0]["session"]
    assert (session["type"], session["object"]) == ("transcription", "realtime.transcription_session")
    assert set(session["audio"]) == {"input"}
    assert session["audio"]["input"]["transcription"] == {}
    assert "voice" not in session


def test_a_committed_turn_is_written_down_and_not_answered() -> None:
    stage = Stage(type="transcription", audio={"input": {"turn_detection": None}})
    stage.append(SECOND)
    said = kinds(stage.say("input_audio_buffer.commit"))
    assert said == ["input_audio_buffer.committed", "conversation.item.added", "conversation.item.done"]
    order = stage.order(Transcribe)
    transcription = "conversation.item.input_audio_transcription"
    events = stage.transcribe(order, TextDelta("Hello"), TextDelta(" there."), STOP)
    assert [event["type"] for event in events] == [*[f"{transcription}.delta"] * 2, f"{transcription}.completed"]
    assert events[-1]["transcript"] == "Hello there."
    assert events[-1]["usage"] == {"type": "duration", "seconds": 1.0}
    assert not stage.has(Respond)


def test_a_turn_that_is_found_by_its_silence_is_written_down_and_not_answered() -> None:
    stage = Stage(type="transcription")
    stage.hear(0.9, 320)
    said = kinds(stage.hear(0.0, 640))
    assert "input_audio_buffer.speech_stopped" in said
    assert stage.has(Transcribe)
    assert not stage.has(Respond)
    assert "response.created" not in kinds(stage.all_events)


def test_a_turn_that_cannot_be_written_down_is_said_and_the_next_one_is() -> None:
    stage = Stage(type="transcription", audio={"input": {"turn_detection": None}})
    for ending in (Failed(UpstreamError("No.")), STOP):
        stage.append(SECOND)
        stage.say("input_audio_buffer.commit")
        events = stage.transcribe(stage.order(Transcribe), ending)
        kind = "failed" if isinstance(ending, Failed) else "completed"
        assert events[-1]["type"] == f"conversation.item.input_audio_transcription.{kind}"


def test_responses_are_refused() -> None:
    (error,) = Stage(type="transcription").say("response.create", event_id="e1")
    assert (error["error"]["code"], error["error"]["event_id"]) == ("unsupported", "e1")


@pytest.mark.parametrize(("opened", "other"), [("transcription", "realtime"), ("realtime", "transcription")])
def test_the_type_of_a_session_cannot_be_changed(opened: str, other: str) -> None:
    stage = Stage(type=opened)
    (error,) = stage.say("session.update", session={"type": other})
    assert (error["error"]["code"], error["error"]["param"]) == ("invalid_value", "session.type")
    (updated,) = stage.say("session.update", session={"type": opened})
    assert updated["session"]["type"] == opened


async def test_openai_python_has_speech_written_down(talking: Service, question: bytes) -> None:
    client = openai.AsyncOpenAI(base_url=f"{talking.url}/v1", api_key="any")
    ear: Any = {
        "type": "transcription",
        "audio": {"input": {"transcription": {"model": "whisper-1", "language": "en"}, "turn_detection": None}},
    }
    written: list[str] = []
    async with client.realtime.connect(extra_query={"intent": "transcription"}) as connection:
        await connection.session.update(session=ear)
        for _ in range(2):
            audio = base64.b64encode(question + silence(0.5)).decode()
            await connection.input_audio_buffer.append(audio=audio)
            await connection.input_audio_buffer.commit()
            async for event in connection:
                assert check(event.to_dict())["type"] != "error"
                if event.type == "conversation.item.input_audio_transcription.completed":
                    written.append(event.transcript)
                    break
    await client.close()
    assert [right(QUESTION, text) >= 0.9 for text in written] == [True, True]


async def test_a_client_secret_may_open_a_transcription_session_and_no_other(service: Service) -> None:
    async with openai.AsyncOpenAI(base_url=f"{service.url}/v1", api_key="any") as client:
        issued = await client.realtime.client_secrets.create(session={"type": "transcription"})
    ClientSecretCreateResponse.model_validate(issued.to_dict(), strict=True)
    headers = {"authorization": f"Bearer {issued.value}"}
    async with realtime(service, "?model=echo", additional_headers=headers) as session:
        assert session.events[0]["session"]["type"] == "transcription"


def test_limits_are_told_after_each_response_where_there_are_any() -> None:
    left = iter([9, 8])
    stage = Stage(standing=lambda: [{"name": "requests", "limit": 10, "remaining": next(left), "reset_seconds": 6.0}])
    for remaining in (9, 8):
        stage.write("hi")
        events = stage.play(stage.respond(), STOP)
        assert [event["type"] for event in events[-2:]] == ["response.done", "rate_limits.updated"]
        assert events[-1]["rate_limits"][0]["remaining"] == remaining


async def test_the_limits_of_the_configuration_are_told(tmp_path: Path) -> None:
    limits = {"requests_per_minute": 100, "tokens_per_minute": 50_000}
    with running(tmp_path, scripted_config(limits=limits)) as service:
        async with realtime(service) as session:
            await session.update(output_modalities=["text"])
            await session.write("one two three")
            await session.respond()
            told = {limit["name"]: limit for limit in (await session.until("rate_limits.updated"))[-1]["rate_limits"]}
    assert (told["requests"]["limit"], told["tokens"]["limit"]) == (100, 50_000)
    assert told["requests"]["remaining"] < 100
    assert told["requests"]["reset_seconds"] > 0


async def test_without_limits_nothing_is_told(service: Service) -> None:
    async with realtime(service) as session:
        await session.update(output_modalities=["text"])
        await session.write("one")
        await session.respond()
        assert (await session.ask("input_audio_buffer.clear", "input_audio_buffer.cleared"))["type"]
        assert "rate_limits.updated" not in kinds(session.events)
