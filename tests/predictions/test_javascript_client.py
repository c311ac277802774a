"""The Replicate wire with the official JavaScript client, replicate 1.4.0, installed by its lock file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.javascript import install, run_node
from tests.predictions.conftest import KEY
from tests.running import Service

Run = Callable[..., Any]


@pytest.fixture(scope="session")
def installed() -> None:
    install()


@pytest.fixture
def run(installed: None, cluster: Service) -> Run:
    """Runs a verb of tests/js/replicate.mjs and gives what it printed."""

    def call(verb: str, *arguments: str, token: str = KEY) -> Any:
        return run_node("replicate.mjs", f"{cluster.url}/v1", token, verb, *arguments)

    return call


def test_the_loop_of_the_documentation_joins_to_the_whole_text(run: Run) -> None:
    """Mission row 62."""
    assert run("stream", "test/story") == {"text": "Once upon a time 옛날옛적에 👩‍👩‍👧", "last": "{}"}


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("test/lines", "a\n\n\nb\nc d\ne"),
        ("test/separators", "one\u2028two\u2029three\u0085four\vfive \u2028six"),
        ("test/links", "https://example.org/ and data:x"),
    ],
)
def test_text_arrives_exactly(run: Run, model: str, text: str) -> None:
    """Case S5; traps 4, 6 and 7."""
    assert run("stream", model)["text"] == text


def test_run_gives_the_complete_text_though_it_waits_too_short(run: Run) -> None:
    """Trap 1."""
    assert run("run", "test/slow") == ["A", "B", "C", "D"]
    assert run("run-by-version", "test/slow") == ["A", "B", "C", "D"]


@pytest.mark.parametrize("model", ["test/fails-first", "test/fails-midway"])
def test_a_failure_is_thrown(run: Run, model: str) -> None:
    assert "detail" in run("stream", model)["error"]


def test_cancel_ends_the_stream(run: Run) -> None:
    assert run("cancel", "test/hangs") == {"status": "canceled", "text": "Begun", "last": '{"reason": "canceled"}'}


def test_a_file_is_sent_inline_when_uploads_are_not_taken(run: Run) -> None:
    assert run("file", "test/story").startswith("data:")


def test_a_voice_gives_a_file(run: Run) -> None:
    assert run("voice", "test/voice") == "RIFF"


def test_list_and_model(run: Run) -> None:
    assert run("list") is True
    assert run("model", "test/story")["owner"] == "test"


def test_a_refusal_has_its_status(run: Run) -> None:
    assert run("stream", "nobody/nothing")["status"] == 404
    assert run("stream", "test/story", token="wrong")["status"] == 401
