"""The OpenAI wire with the official JavaScript client, installed by its lock file."""

from __future__ import annotations

import base64
import io
import wave
from collections.abc import Callable
from typing import Any

import pytest

from tests.javascript import install, run_node
from tests.running import Service

TEXT = "Hello 안녕하세요 👋🏽"
Run = Callable[..., Any]


@pytest.fixture(scope="module")
def installed() -> None:
    install()


@pytest.fixture
def run(installed: None, service: Service) -> Run:
    """Runs a verb of tests/js/openai.mjs and gives what it printed."""

    def call(verb: str, argument: str) -> Any:
        return run_node("openai.mjs", f"{service.url}/v1", verb, argument)

    return call


def test_chat_streams(run: Run) -> None:
    assert run("chat", "hello") == {"text": TEXT, "finish": "stop", "tokens": 6}
    assert run("tools", "tools") == [["get_weather", '{"city": "Seoul"}'], ["get_time", "{}"]]
    assert run("chat-whole", "hello") == TEXT


def test_completions_stream(run: Run) -> None:
    assert run("completion", "hello") == TEXT


def test_responses_stream(run: Run) -> None:
    answer = run("responses", "hello")
    assert answer["text"] == TEXT
    assert (answer["types"][0], answer["types"][-1]) == ("response.created", "response.completed")
    calls = run("responses", "tools")["calls"]
    assert [(call["name"], call["arguments"]) for call in calls] == [
        ("get_weather", '{"city": "Seoul"}'),
        ("get_time", "{}"),
    ]


def test_a_response_is_resumed_and_continued(run: Run) -> None:
    answer = run("resume", "hello")
    assert answer["all"] == list(range(len(answer["all"])))
    assert answer["rest"] == answer["all"][4:]
    assert answer["next"] == f"user: hi\nassistant: {TEXT}\nuser: next"


def test_speech_is_whole(run: Run) -> None:
    data = base64.b64decode(run("speech", "wav"))
    with wave.open(io.BytesIO(data)) as reader:
        assert reader.getframerate() == 24_000
        assert len(reader.readframes(10**8)) == len(data) - 44 > 48_000


def test_transcriptions_stream(run: Run) -> None:
    assert run("transcription", "transcriber") == {
        "text": TEXT,
        "types": ["transcript.text.delta", "transcript.text.done"],
    }


def test_models_are_listed(run: Run) -> None:
    assert "hello" in run("models", "")


@pytest.mark.parametrize(
    ("verb", "model", "error", "status"),
    [
        ("chat", "fails-midway", "APIError", None),
        ("responses", "nope", "NotFoundError", 404),
        ("chat-whole", "fails-first", "RateLimitError", 429),
    ],
)
def test_errors_have_their_class(run: Run, verb: str, model: str, error: str, status: int | None) -> None:
    answer = run(verb, model)
    assert (answer["error"], answer.get("status")) == (error, status)
