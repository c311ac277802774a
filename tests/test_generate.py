"""`/generate`: honest content type, broken body on failure midway, true statuses before the first piece."""

from __future__ import annotations

import json
import math
import time

import bentoml
import httpx
import pytest

from tests.running import Service


def ask(service: Service, model: str, **more: object) -> httpx.Response:
    return httpx.post(f"{service.url}/generate", json={"prompt": "hi", "model": model, **more}, timeout=10)


def test_pieces_arrive_as_they_are_written(service: Service) -> None:
    arrivals: list[float] = []
    with httpx.stream("POST", f"{service.url}/generate", json={"prompt": "hi", "model": "hello"}) as answer:
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        pieces = []
        for piece in answer.iter_text():
            pieces.append(piece)
            arrivals.append(time.monotonic())
    assert "".join(pieces) == "Hello 안녕하세요 👋🏽"
    assert len(pieces) == 3
    assert arrivals[-1] - arrivals[0] > 0.08


def test_a_failure_midway_breaks_the_body(service: Service) -> None:
    for model in ("fails-midway", "faults", "truncated"):
        with (
            pytest.raises(httpx.RemoteProtocolError),
            httpx.stream("POST", f"{service.url}/generate", json={"prompt": "hi", "model": model}) as answer,
        ):
            assert "".join(answer.iter_text()) == "never read to its end"


def test_a_refusal_before_the_first_piece_has_its_status(service: Service) -> None:
    answer = ask(service, "fails-first")
    assert answer.status_code == 429
    assert answer.json()["error"] == "Slow down."
    assert ask(service, "nope").status_code == 404
    assert ask(service, "hello", max_tokens=0).status_code == 400


def test_every_documented_field_is_taken_in_its_usual_forms(service: Service) -> None:
    history = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    for more in (
        {"messages": history, "system": "Be brief.", "max_tokens": 9, "temperature": 0.5, "top_p": 0.5, "stop": ["x"]},
        {"messages": None, "system": None, "max_tokens": None, "stop": "x"},
    ):
        assert ask(service, "hello", **more).text == "Hello 안녕하세요 👋🏽"


def test_server_sent_events_are_framed_when_asked(service: Service) -> None:
    accept = {"accept": "text/event-stream"}
    answer = httpx.post(f"{service.url}/generate", json={"prompt": "hi", "model": "hello"}, headers=accept)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.text == "data: Hello\n\ndata:  안녕하세요\n\ndata:  👋🏽\n\nevent: done\ndata: {}\n\n"


def test_bentoml_client_streams_and_raises_on_a_broken_body(service: Service) -> None:
    with bentoml.SyncHTTPClient(service.url) as client:
        assert "".join(client.generate(prompt="hi", model="hello")) == "Hello 안녕하세요 👋🏽"
        with pytest.raises(Exception, match="incomplete chunked read"):
            list(client.generate(prompt="hi", model="fails-midway"))


@pytest.mark.parametrize("framed", [False, True])
def test_what_only_bentoml_can_read_is_answered_alike(service: Service, framed: bool) -> None:
    """A field that nobody asks for, with a value that is not JSON: BentoML takes it, the short way leaves it."""
    accept = {"accept": "text/event-stream" if framed else "*/*"}
    for model in ("hello", "fails-first", "fails-midway", "truncated", "nope"):
        answers = []
        for more in ({}, {"score": math.nan}):
            body = json.dumps({"prompt": "hi", "model": model, **more})
            with httpx.stream("POST", f"{service.url}/generate", content=body, headers=accept, timeout=10) as answer:
                said, broken = b"", False
                try:
                    for piece in answer.iter_raw():
                        said += piece
                except httpx.RemoteProtocolError:
                    broken = True
                answers.append((answer.status_code, answer.headers["content-type"], said, broken))
        assert answers[0] == answers[1]


def test_outcomes_are_counted_as_what_they_were(service: Service) -> None:
    before = {
        outcome: service.metric("polywire_streams_total", wire="generate", outcome=outcome)
        for outcome in ("finished", "failed", "truncated")
    }
    ask(service, "hello")
    for model in ("fails-midway", "faults", "truncated"):
        with pytest.raises(httpx.RemoteProtocolError):
            ask(service, model)
    after = {outcome: service.metric("polywire_streams_total", wire="generate", outcome=outcome) for outcome in before}
    assert {outcome: after[outcome] - before[outcome] for outcome in before} == {
        "finished": 1,
        "failed": 2,
        "truncated": 1,
    }


def test_the_log_never_holds_a_fault_as_success_nor_the_prompt(service: Service) -> None:
    answer = ask(service, "hello", system="do-not-log-me")
    lines = [line for line in service.access_lines() if line["request_id"] == answer.headers["x-request-id"]]
    assert [line["outcome"] for line in lines] == ["finished"]
    httpx.post(f"{service.url}/generate", json={"prompt": 7, "note": "do-not-log-me"})
    assert "do-not-log-me" not in service.log.read_text()
