"""Transcription: uploads of every common format, the answers' forms, and refusals that say what to send."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
import pytest
from openai.types.audio import (
    Transcription,
    TranscriptionTextDeltaEvent,
    TranscriptionTextDoneEvent,
    TranscriptionVerbose,
)

from tests.running import Service

HEARD = "Hello 안녕하세요 👋🏽"


@pytest.fixture(scope="module")
def speech(service: Service) -> dict[str, bytes]:
    """A second of sound in each format."""

    def say(name: str) -> bytes:
        body = {"model": "voice", "input": "a text of some 17 c", "response_format": name}
        return httpx.post(f"{service.url}/v1/audio/speech", json=body).content

    return {name: say(name) for name in ("wav", "mp3", "flac", "opus")}


def write_down(service: Service, sound: bytes, **fields: Any) -> httpx.Response:
    data = {"model": "transcriber", **fields}
    return httpx.post(f"{service.url}/v1/audio/transcriptions", files={"file": ("a.wav", sound)}, data=data)


def test_the_sdk_uploads_every_format(client: openai.OpenAI, speech: dict[str, bytes]) -> None:
    for name, sound in speech.items():
        answer = client.audio.transcriptions.create(model="transcriber", file=(f"a.{name}", sound))
        assert answer.text == HEARD


def test_every_form_is_valid_for_the_official_types(service: Service, speech: dict[str, bytes]) -> None:
    plain = write_down(service, speech["wav"])
    answer = Transcription.model_validate_json(plain.text, strict=True)
    assert answer.usage is not None
    assert answer.usage.type == "duration"
    assert answer.usage.seconds == pytest.approx(19 * 0.06, abs=0.01)
    verbose = write_down(service, speech["wav"], response_format="verbose_json", language="ko")
    whole = TranscriptionVerbose.model_validate_json(verbose.text, strict=True)
    assert whole.language == "ko"
    assert whole.segments is not None
    assert [segment.text for segment in whole.segments] == [HEARD]
    text = write_down(service, speech["wav"], response_format="text")
    assert (text.headers["content-type"], text.text) == ("text/plain; charset=utf-8", HEARD + "\n")


def test_a_stream_is_read_by_the_sdk(client: openai.OpenAI, speech: dict[str, bytes]) -> None:
    events = list(client.audio.transcriptions.create(model="transcriber", file=("a.mp3", speech["mp3"]), stream=True))
    assert "".join(event.delta for event in events if event.type == "transcript.text.delta") == HEARD
    assert events[-1].type == "transcript.text.done"


def test_every_event_is_valid_for_the_official_types(service: Service, speech: dict[str, bytes]) -> None:
    answer = write_down(service, speech["wav"], stream="true")
    *deltas, done = [event.removeprefix("data: ") for event in answer.text.split("\n\n") if event]
    for delta in deltas:
        TranscriptionTextDeltaEvent.model_validate_json(delta, strict=True)
    assert TranscriptionTextDoneEvent.model_validate_json(done, strict=True).text == HEARD


def test_a_failure_midway_is_an_error_frame(service: Service, speech: dict[str, bytes]) -> None:
    answer = write_down(service, speech["wav"], model="transcriber-fails-midway", stream="true")
    events = [json.loads(event.removeprefix("data: ")) for event in answer.text.split("\n\n") if event]
    assert events[0] == {"type": "transcript.text.delta", "delta": "Hello"}
    assert "error" in events[-1]
    assert write_down(service, speech["wav"], model="transcriber-fails-midway").status_code == 502


def test_a_file_that_is_no_audio_is_refused_in_a_sentence(client: openai.OpenAI) -> None:
    for wrong in (b"<html>", b"", b"RIFF" + b"\0" * 100):
        with pytest.raises(openai.BadRequestError) as refused:
            client.audio.transcriptions.create(model="transcriber", file=("a.wav", wrong))
        assert refused.value.param == "file"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": "srt"}, "response_format"),
        ({"response_format": "diarized_json"}, "response_format"),
        ({"response_format": "xml"}, "response_format"),
        ({"timestamp_granularities[]": "word", "response_format": "verbose_json"}, "timestamp_granularities"),
        ({"timestamp_granularities[]": "segment"}, "timestamp_granularities"),
        ({"include[]": "logprobs"}, "include"),
        ({"temperature": "7"}, "temperature"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(
    service: Service, speech: dict[str, bytes], fields: dict[str, str], param: str
) -> None:
    answer = write_down(service, speech["wav"], **fields)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_unknown_models_and_missing_files_are_told_apart(service: Service, speech: dict[str, bytes]) -> None:
    assert write_down(service, speech["wav"], model="whisper-1").status_code == 404
    missing = httpx.post(f"{service.url}/v1/audio/transcriptions", data={"model": "transcriber"})
    assert (missing.status_code, missing.json()["error"]["param"]) == (400, "file")
