"""A prediction's events by exact requests and bytes, on a service of two workers: nothing depends on who answers."""

from __future__ import annotations

import json
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.predictions.caller import Caller, read_until
from tests.predictions.conftest import KEY
from tests.predictions.events import joined, plain
from tests.running import Service


def test_the_documented_curl_command_works_though_it_sends_a_form(cluster: Service) -> None:
    """Mission rows 51 to 53: `-d` without a content type of its own."""
    made = subprocess.run(
        ["curl", "-sS", "-X", "POST", "-H", f"Authorization: Bearer {KEY}",
         "-d", '{"input": {"prompt": "Tell me a story"}, "stream": true}',
         f"{cluster.url}/v1/models/test/story/predictions"],
        capture_output=True, check=True, timeout=20,
    )  # fmt: skip
    prediction = json.loads(made.stdout)
    streamed = subprocess.run(
        ["curl", "-sSN", "-X", "GET", "-H", f"Authorization: Bearer {KEY}", "-H", "Accept: text/event-stream",
         prediction["urls"]["stream"]],
        capture_output=True, check=True, timeout=20,
    )  # fmt: skip
    events = plain(streamed.stdout)
    assert joined(events) == "Once upon a time 옛날옛적에 👩‍👩‍👧"
    assert events[-1][:2] == ("done", "{}")


def test_every_token_arrives_whole(caller: Caller) -> None:
    """Cases S5 and R1's opposite: newlines, rare separators and links as text."""
    assert joined(caller.events(caller.create("lines"))) == "a\n\n\nb\nc d\n" + "e"
    assert joined(caller.events(caller.create("separators"))) == "one\u2028two\u2029three\u0085four\vfive \u2028six"
    assert joined(caller.events(caller.create("links"))) == "https://example.org/ and data:x"
    waited = caller.create("links", headers={"prefer": "wait"})
    assert not any(item.startswith(("https:", "data:")) for item in waited["output"])
    assert "".join(waited["output"]) == "https://example.org/ and data:x"


def test_a_reader_that_comes_back_gets_exactly_the_rest(caller: Caller, cluster: Service) -> None:
    """Case Q1: 5 outputs read, dropped, back with the id of the third; then back after the end."""
    before = cluster.metric("polywire_streams_total", wire="replicate")
    prediction = caller.create("count")
    seen = read_until(prediction["urls"]["stream"], "4 ")
    rest = caller.events(prediction, **{"Last-Event-ID": seen[2][2]})
    assert [data for _, data, _ in rest] == ["3 ", "4 ", "5 ", "6 ", "7 ", "{}"]
    numbers = [int(id.partition(":")[2]) for _, _, id in rest]
    assert numbers == list(range(3, 9))
    assert caller.events(prediction) == seen[:3] + rest
    assert caller.events(prediction, **{"Last-Event-ID": "unknown"}) == seen[:3] + rest
    assert cluster.metric("polywire_streams_total", wire="replicate") == before + 1


def test_a_browser_that_reconnects_after_done_is_told_to_stop(caller: Caller) -> None:
    """Mission row 71: status 204 ends an EventSource."""
    prediction = caller.create("story")
    last = caller.events(prediction)[-1][2]
    answer = httpx.get(prediction["urls"]["stream"], headers={"last-event-id": last})
    assert (answer.status_code, answer.content) == (204, b"")


@pytest.mark.parametrize("token", ["x", "a" * 52, "%F0%9F%91%8B"])
def test_an_unknown_stream_is_a_timed_out_one(caller: Caller, token: str) -> None:
    """Mission rows 69 and 70."""
    answer = httpx.get(f"{caller.url}/v1/streams/{token}", headers={"origin": "https://elsewhere.example"})
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.content == b":408: 408 Request Timeout\n\n"


def test_a_slow_stream_gets_comments_and_no_time_out(caller: Caller) -> None:
    answer = httpx.get(caller.create("slow")["urls"]["stream"], timeout=20)
    assert b": keep-alive\n\n" in answer.content
    assert b":408:" not in answer.content
    assert joined(plain(answer.content)) == "ABCD"


def test_a_stream_needs_no_key_and_forgives_a_wrong_one(caller: Caller) -> None:
    """Trap 8."""
    prediction = caller.create("story")
    assert caller.events(prediction, authorization="Bearer wrong") == caller.events(prediction)


def test_a_page_of_another_origin_may_read_a_stream(caller: Caller) -> None:
    prediction = caller.create("story")
    answer = httpx.options(
        prediction["urls"]["stream"],
        headers={
            "origin": "https://elsewhere.example",
            "access-control-request-method": "GET",
            "access-control-request-headers": "last-event-id",
        },
    )
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-origin"] == "*"
    assert "last-event-id" in answer.headers["access-control-allow-headers"]


def test_the_prediction_itself_streams_to_a_reader_with_its_key_who_asks_for_events(caller: Caller) -> None:
    prediction = caller.create("story")
    answer = caller.send("GET", prediction["urls"]["get"], headers={"accept": "text/event-stream"})
    assert plain(answer.content) == caller.events(prediction)


@pytest.mark.parametrize("model", ["fails-first", "fails-midway", "faults", "truncated"])
def test_a_failure_is_an_error_then_done_within_a_second(caller: Caller, model: str) -> None:
    """Case R1."""
    began = time.monotonic()
    prediction = caller.create(model)
    events = caller.events(prediction)
    assert time.monotonic() - began < 2
    assert [event for event, _, _ in events[-2:]] == ["error", "done"]
    assert json.loads(events[-1][1]) == {"reason": "error"}
    detail = json.loads(events[-2][1])["detail"]
    assert detail
    assert "secret" not in detail
    assert joined(events) == ("" if model == "fails-first" else "Begun")
    body = caller.get(prediction)
    assert (body["status"], body["error"]) == ("failed", detail)
    assert body["output"] == (None if model == "fails-first" else ["Begun"])


def test_ten_cancels_at_once_all_succeed(caller: Caller) -> None:
    """Case X4, over two workers."""
    prediction = caller.create("hangs")
    read_until(prediction["urls"]["stream"], "Begun")
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: caller.send("POST", prediction["urls"]["cancel"]), range(10)))
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.json()["status"] for answer in answers} == {"canceled"}
    assert len({answer.json()["completed_at"] for answer in answers}) == 1
    events = caller.events(prediction)
    assert [event for event, _, _ in events] == ["output", "done"]
    assert json.loads(events[-1][1]) == {"reason": "canceled"}
    again = caller.send("POST", prediction["urls"]["cancel"])
    assert again.json() == answers[0].json()
    assert caller.send("POST", "/v1/predictions/unknown/cancel").status_code == 404


def test_twenty_predictions_are_found_by_either_worker(caller: Caller, cluster: Service) -> None:
    """Case N1."""
    assert len(cluster.workers()) == 2
    made = [caller.create("hangs") for _ in range(20)]
    with ThreadPoolExecutor(10) as pool:
        seen = list(pool.map(lambda prediction: read_until(prediction["urls"]["stream"], "Begun"), made))
        got = list(pool.map(caller.get, made))
        cancelled = list(pool.map(lambda prediction: caller.send("POST", prediction["urls"]["cancel"]), made))
    assert all(joined(events) == "Begun" for events in seen)
    assert {body["status"] for body in got} == {"processing"}
    assert {answer.json()["status"] for answer in cancelled} == {"canceled"}


def test_a_cancel_after_its_time_needs_no_one(caller: Caller) -> None:
    events = caller.events(caller.create("hangs", headers={"cancel-after": "0.3s"}))
    assert json.loads(events[-1][1]) == {"reason": "canceled"}


def test_a_reader_that_leaves_does_not_stop_the_prediction(caller: Caller) -> None:
    prediction = caller.create("slow")
    read_until(prediction["urls"]["stream"], "B")
    assert joined(caller.events(prediction)) == "ABCD"
