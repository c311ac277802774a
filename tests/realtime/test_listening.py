"""The session's ears: buffers, turns, interruption and transcripts, without a detector and without a clock."""

from __future__ import annotations

import pytest

from gateway.errors import UpstreamError
from gateway.events import Failed, TextDelta
from gateway.g711 import encode_g711
from tests.realtime.sessions import kinds
from tests.realtime.stage import FINISHED, SECOND, Stage
from tests.sounds import tone
from wires.openai.realtime.outgoing import Listen, Respond, Stop, Transcribe

MANUAL = {"input": {"turn_detection": None}}
TRANSCRIBED = {"input": {"transcription": {"model": "whisper-1"}}}
COMMITTED = ["input_audio_buffer.committed", "conversation.item.added", "conversation.item.done"]


def test_a_commit_makes_an_item_and_no_response() -> None:
    stage = Stage(audio={"input": {"turn_detection": None, "transcription": {"model": "transcriber"}}})
    stage.append(SECOND)
    assert not stage.has(Listen)
    events = stage.say("input_audio_buffer.commit")
    assert kinds(events) == COMMITTED
    assert events[1]["item"]["content"] == [{"type": "input_audio", "transcript": None}]
    order = stage.order(Transcribe)
    assert (order.request.model, len(order.request.pcm), order.request.rate) == ("transcriber", 48_000, 24_000)
    said = stage.transcribe(order, TextDelta("Hello"), TextDelta(" there."), FINISHED)
    prefix = "conversation.item.input_audio_transcription"
    assert kinds(said) == [f"{prefix}.delta", f"{prefix}.completed"]
    assert said[-1]["transcript"] == "Hello there."
    assert said[-1]["usage"] == {"type": "duration", "seconds": 1.0}
    assert not stage.has(Respond)
    retrieved = stage.say("conversation.item.retrieve", item_id=events[0]["item_id"])[0]["item"]
    assert retrieved["content"] == [{"type": "input_audio", "transcript": "Hello there."}]


def test_clearing_forgets_the_audio() -> None:
    stage = Stage(audio=MANUAL)
    stage.append(SECOND)
    assert kinds(stage.say("input_audio_buffer.clear")) == ["input_audio_buffer.cleared"]
    assert stage.say("input_audio_buffer.commit")[0]["error"]["code"] == "input_audio_buffer_commit_empty"


def test_samples_may_be_cut_anywhere() -> None:
    stage = Stage(audio=MANUAL)
    samples = tone(0.1).tobytes()
    for byte in range(0, len(samples), 7):
        stage.append(samples[byte : byte + 7])
    stage.say("input_audio_buffer.commit")
    stage.say("response.create")
    assert stage.order(Transcribe).request.pcm == samples


@pytest.mark.parametrize("law", ["pcmu", "pcma"])
def test_telephone_audio_is_taken_and_given(law: str) -> None:
    form = {"type": f"audio/{law}"}
    stage = Stage(audio={"input": {"turn_detection": None, "format": form}, "output": {"format": form}})
    stage.append(encode_g711(tone(1.0, 8_000).tobytes(), law))  # type: ignore[arg-type]  # parametrized
    stage.say("input_audio_buffer.commit")
    stage.say("response.create")
    heard = stage.order(Transcribe)
    assert (len(heard.request.pcm), heard.request.rate) == (16_000, 8_000)
    stage.transcribe(heard, TextDelta("Hello."), FINISHED)
    order = stage.order(Respond)
    assert order.speech is not None
    assert order.speech.format.rate == 8_000


def test_a_spoken_turn_is_found_committed_and_answered() -> None:
    stage = Stage(audio=TRANSCRIBED)
    assert stage.hear(0.0, 960) == []
    started = stage.hear(1.0, 640)
    assert kinds(started) == ["input_audio_buffer.speech_started"]
    # 960 ms of silence, less 300 ms of padding.
    assert started[0]["audio_start_ms"] == 660
    events = stage.hear(0.0, 640)
    assert kinds(events) == ["input_audio_buffer.speech_stopped", *COMMITTED, "response.created"]
    item_id = started[0]["item_id"]
    assert [event["item_id"] for event in events[:2]] == [item_id, item_id]
    assert events[0]["audio_end_ms"] == 960 + 640 + 512
    order = stage.order(Transcribe)
    assert len(order.request.pcm) == 48 * (events[0]["audio_end_ms"] - 660)
    stage.transcribe(order, TextDelta("What time is it?"), FINISHED)
    assert stage.order(Respond).chat.messages[-1].text == "What time is it?"


def test_a_click_is_no_turn() -> None:
    stage = Stage()
    assert stage.hear(1.0, 32) == []
    assert stage.hear(0.0, 320) == []


def test_hesitation_does_not_end_a_turn() -> None:
    stage = Stage()
    stage.hear(1.0, 320)
    assert stage.hear(0.0, 448) == []
    assert stage.hear(0.9, 64) == []
    assert stage.hear(0.0, 448) == []


def test_semantic_vad_is_a_pause_by_eagerness() -> None:
    for eagerness, pause in (("high", 300), ("auto", 600), ("low", 1000)):
        stage = Stage(audio={"input": {"turn_detection": {"type": "semantic_vad", "eagerness": eagerness}}})
        stage.hear(1.0, 320)
        assert stage.hear(0.0, pause // 32 * 32) == []
        assert "input_audio_buffer.speech_stopped" in kinds(stage.hear(0.0, 64))


def test_speech_interrupts_the_answer_and_only_what_was_heard_is_remembered() -> None:
    stage = Stage()
    stage.write("Count.")
    order = stage.respond()
    stage.speak(order, "One two three four five six seven eight.", 4.0)
    stage.now += 2.0
    events = stage.hear(1.0, 64)
    assert kinds(events)[0] == "input_audio_buffer.speech_started"
    assert stage.order(Stop).response_id == order.response_id
    response = events[-1]["response"]
    assert response["status_details"] == {"type": "cancelled", "reason": "turn_detected"}
    assert stage.history()[-1] == ("assistant", "One two three four")
    assert stage.play(order, TextDelta("nine"), FINISHED) == []


def test_speech_over_an_answer_that_is_made_but_not_played_cuts_what_is_remembered() -> None:
    stage = Stage()
    stage.write("Count.")
    order = stage.respond()
    stage.speak(order, "One two three four five six seven eight.", 4.0)
    stage.play(order, FINISHED)
    stage.now += 2.0
    assert kinds(stage.hear(1.0, 64)) == ["input_audio_buffer.speech_started"]
    assert stage.history()[-1] == ("assistant", "One two three four")


def test_speech_after_the_answer_was_played_cuts_nothing() -> None:
    stage = Stage()
    stage.write("Count.")
    order = stage.respond()
    stage.speak(order, "One two three.", 1.0)
    stage.play(order, FINISHED)
    stage.now += 1.5
    stage.hear(1.0, 64)
    assert stage.history()[-1] == ("assistant", "One two three.")


def test_an_answer_that_may_not_be_interrupted_is_followed_by_the_next() -> None:
    detection = {"type": "server_vad", "interrupt_response": False}
    stage = Stage(audio={"input": {"turn_detection": detection}})
    stage.write("Count.")
    order = stage.respond()
    stage.speak(order, "One two.", 0.5)
    assert kinds(stage.hear(1.0, 320)) == ["input_audio_buffer.speech_started"]
    assert "response.created" not in kinds(stage.hear(0.0, 640))
    events = stage.play(order, FINISHED)
    assert kinds(events)[-2:] == ["response.done", "response.created"]
    assert stage.has(Transcribe)


def test_without_create_response_a_turn_is_only_committed() -> None:
    detection = {"type": "server_vad", "create_response": False}
    stage = Stage(audio={"input": {"turn_detection": detection}})
    stage.hear(1.0, 320)
    assert kinds(stage.hear(0.0, 640)) == ["input_audio_buffer.speech_stopped", *COMMITTED]


def test_a_noise_that_holds_no_words_is_answered_by_nothing() -> None:
    stage = Stage()
    stage.hear(1.0, 320)
    stage.hear(0.0, 640)
    (done,) = stage.transcribe(stage.order(Transcribe), FINISHED)
    assert (done["type"], done["response"]["status"], done["response"]["output"]) == ("response.done", "completed", [])
    assert not stage.has(Respond)


def test_a_transcription_that_fails_fails_the_answer_and_not_the_session() -> None:
    stage = Stage(audio=TRANSCRIBED)
    stage.hear(1.0, 320)
    stage.hear(0.0, 640)
    events = stage.transcribe(stage.order(Transcribe), Failed(UpstreamError("It broke.")))
    assert kinds(events) == ["conversation.item.input_audio_transcription.failed", "response.done"]
    assert events[0]["error"] == {"type": "server_error", "code": "upstream_error", "message": "It broke."}
    assert events[1]["response"]["status"] == "failed"
    stage.write("hi")
    stage.say("response.create")
    assert stage.has(Respond)


def test_a_response_can_be_cancelled_while_its_question_is_written_down() -> None:
    stage = Stage()
    stage.hear(1.0, 320)
    stage.hear(0.0, 640)
    order = stage.order(Transcribe)
    assert stage.say("response.cancel")[-1]["response"]["status"] == "cancelled"
    assert stage.transcribe(order, TextDelta("Hello."), FINISHED) == []
    assert not stage.has(Respond)


def test_silence_after_an_answer_makes_the_next() -> None:
    detection = {"type": "server_vad", "idle_timeout_ms": 5_000}
    stage = Stage(audio={"input": {"turn_detection": detection}})
    stage.hear(0.0, 320)
    stage.write("hi")
    order = stage.respond()
    stage.speak(order, "Hello.", 2.0)
    stage.play(order, FINISHED)
    # Counted from when the answer was played.
    assert stage.session.deadline == pytest.approx(stage.now + 2.0 + 5.0)
    stage.hear(0.0, 320)
    events = stage.expire()
    assert kinds(events) == ["input_audio_buffer.timeout_triggered", *COMMITTED, "response.created"]
    assert (events[0]["audio_start_ms"], events[0]["audio_end_ms"]) == (320, 640)
    assert stage.order(Respond).chat.messages[-1].text == "(The user is silent.)"


def test_speech_stops_the_idle_clock() -> None:
    detection = {"type": "server_vad", "idle_timeout_ms": 5_000}
    stage = Stage(audio={"input": {"turn_detection": detection}}, lifetime=3600)
    stage.write("hi")
    stage.play(stage.respond(output_modalities=["text"]), TextDelta("Hello."), FINISHED)
    assert stage.session.deadline == stage.now + 5.0
    stage.hear(1.0, 64)
    assert stage.session.deadline == 100.0 + 3600


def test_a_manual_commit_in_the_middle_of_speech_keeps_the_announced_item() -> None:
    stage = Stage()
    started = stage.hear(1.0, 320)
    events = stage.say("input_audio_buffer.commit")
    assert events[0]["item_id"] == started[0]["item_id"]
    assert stage.hear(0.0, 1_600) == []
