"""The SageMaker runtime API with AWS's JavaScript SDK, as the seed's Lambda function should have used it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.javascript import install, run_node
from tests.running import Service

Run = Callable[[str, str], Any]


@pytest.fixture(scope="module")
def installed() -> None:
    install()


@pytest.fixture
def run(installed: None, service: Service) -> Run:
    """Runs a verb of tests/js/sagemaker.mjs for an endpoint and gives what it printed."""

    def call(verb: str, endpoint: str) -> Any:
        return run_node("sagemaker.mjs", service.url, verb, endpoint)

    return call


def said(body: str) -> str:
    events = [event.removeprefix("data:") for event in body.split("\n\n") if event.startswith("data:{")]
    deltas = [choice["delta"] for event in events for choice in json.loads(event).get("choices", ())]
    return "".join(delta.get("content", "") for delta in deltas)


def test_the_response_stream_is_read(run: Run) -> None:
    """Mission row 94."""
    answer = run("stream", "hello")
    assert answer["type"] == "text/event-stream"
    assert said(answer["body"]) == "Hello 안녕하세요 👋🏽"
    assert answer["body"].endswith("data:[DONE]\n\n")


def test_a_whole_answer_is_read(run: Run) -> None:
    assert run("whole", "hello") == "Hello 안녕하세요 👋🏽"


def test_a_failure_midway_is_thrown_after_the_text(run: Run) -> None:
    answer = run("stream", "fails-midway")
    assert said(answer["body"]) == "Hello"
    assert (answer["error"], "It broke." in answer["message"]) == ("ModelStreamError", True)


@pytest.mark.parametrize(
    ("endpoint", "name", "status"), [("nope", "ValidationError", 404), ("fails-first", "ThrottlingException", 429)]
)
def test_a_refusal_has_its_name_and_status(run: Run, endpoint: str, name: str, status: int) -> None:
    answer = run("stream", endpoint)
    assert (answer["error"], answer["status"]) == (name, status)
