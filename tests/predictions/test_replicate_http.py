"""The Replicate wire by exact requests and bytes, on a service of two workers: nothing depends on who answers."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.predictions.conftest import KEY, OTHER_KEY
from tests.predictions.test_encoder import joined, plain
from tests.running import Service


class Caller:
    """Sends each request over a new connection, so that either worker may get it."""

    def __init__(self, service: Service) -> None:
        self.url = service.url
        self.headers = dict(service.headers)

    def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        headers = self.headers | options.pop("headers", {})
        url = path if path.startswith("http") else self.url + path
        return httpx.request(method, url, headers=headers, timeout=20, **options)

    def create(self, model: str, prompt: str = "hi", **options: Any) -> dict[str, Any]:
        """A prediction of `test/model`."""
        answer = self.send(
            "POST", f"/v1/models/test/{model}/predictions", json={"input": {"prompt": prompt}}, **options
        )
        assert answer.status_code == 201, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def get(self, prediction: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = self.send("GET", prediction["urls"]["get"]).json()
        return found

    def events(self, prediction: dict[str, Any], **headers: str) -> list[tuple[str, str, str]]:
        """The whole stream, read without a key."""
        answer = httpx.get(prediction["urls"]["stream"], headers=headers, timeout=20)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        return plain(answer.content)


@pytest.fixture
def caller(cluster: Service) -> Caller:
    return Caller(cluster)


def read_until(url: str, data: str) -> list[tuple[str, str, str]]:
    """The events up to one with `data`, then hang up."""
    body = b""
    with httpx.stream("GET", url, timeout=20) as answer:
        for piece in answer.iter_raw():
            body += piece
            events = plain(body)
            if any(event[1] == data for event in events):
                return events
    raise AssertionError(f"the stream ended before {data!r}")


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


def test_a_create_answer_has_every_field_and_no_null_that_clients_reject(caller: Caller) -> None:
    """Traps 1, 8 and 9."""
    answer = caller.send("POST", "/v1/models/test/story/predictions", json={"input": {"prompt": "hi"}})
    body = answer.json()
    assert answer.headers["location"] == body["urls"]["get"]
    assert (body["status"], body["output"], body["version"]) == ("starting", None, "hidden")
    assert set(body["urls"]) == {"web", "get", "cancel", "stream"}
    assert all(isinstance(url, str) for url in body["urls"].values())
    assert body["input"] == {"prompt": "hi"}
    assert body["error"] is None
    assert body["created_at"].endswith("Z")
    assert len(body["id"]) == 26


def test_the_output_grows_while_the_prediction_is_processed(caller: Caller) -> None:
    """Trap 12: some clients only poll."""
    prediction = caller.create("hangs")
    deadline = time.monotonic() + 10
    while (body := caller.get(prediction))["output"] is None:
        assert time.monotonic() < deadline
    assert (body["status"], body["output"]) == ("processing", ["Begun"])
    caller.send("POST", prediction["urls"]["cancel"])


def test_a_finished_prediction_has_times_and_metrics(caller: Caller) -> None:
    prediction = caller.create("story", headers={"prefer": "wait"})
    assert prediction["status"] == "succeeded"
    assert prediction["output"] == ["Once", " upon a time", " 옛날옛적에 👩‍👩‍👧"]
    assert prediction["metrics"]["predict_time"] <= prediction["metrics"]["total_time"]
    assert prediction["metrics"]["output_token_count"] == 4
    assert caller.create("empty", headers={"prefer": "wait"})["output"] == []


@pytest.mark.parametrize(("prefer", "applied"), [("wait=1", "wait=1"), ("respond-async, wait=1", "wait=1")])
def test_a_wait_that_ends_early_answers_starting_without_output_and_in_time(
    caller: Caller, prefer: str, applied: str
) -> None:
    """Trap 1: clients take any other status for the end, and skip output that is there."""
    began = time.monotonic()
    answer = caller.send(
        "POST",
        "/v1/models/test/slow/predictions",
        json={"input": {"prompt": "hi"}},
        headers={"prefer": prefer},
    )
    assert 0.9 < time.monotonic() - began < 1.45
    assert answer.headers["preference-applied"] == applied
    body = answer.json()
    assert (body["status"], body["output"]) == ("starting", None)
    assert joined(caller.events(body)) == "ABCD"


def test_three_forms_of_create_and_the_doubled_prefix(caller: Caller) -> None:
    version = caller.send("GET", "/v1/models/test/story/versions").json()["results"][0]["id"]
    assert len(version) == 64
    for path, reference in (
        ("/v1/predictions", "test/story"),
        ("/v1/predictions", f"test/story:{version}"),
        ("/v1/predictions", version),
        ("/v1/v1/predictions", version),
        ("/v1/deployments/test/story/predictions", None),
    ):
        body = {"input": {"prompt": "hi"}} | ({"version": reference} if reference else {})
        made = caller.send("POST", path, json=body, headers={"prefer": "wait=10"}).json()
        assert (made["status"], made["model"], made["version"]) == ("succeeded", "test/story", version)
    assert made["deployment"] == "test/story"


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


def test_another_key_finds_nothing_and_lists_nothing(caller: Caller) -> None:
    prediction = caller.create("story")
    other = {"authorization": f"Bearer {OTHER_KEY}"}
    for method, path in (("GET", prediction["urls"]["get"]), ("POST", prediction["urls"]["cancel"])):
        answer = caller.send(method, path, headers=other)
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/problem+json"
    listed = caller.send("GET", "/v1/predictions", headers=other).json()
    assert listed == {"previous": None, "next": None, "results": []}


def pages(caller: Caller) -> Iterator[dict[str, Any]]:
    following: str | None = "/v1/predictions"
    while following:
        page = caller.send("GET", following).json()
        yield page
        following = page["next"]


def test_the_list_comes_in_pages_newest_first(caller: Caller) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: caller.create("empty"), range(105)))
    newest = caller.create("story")
    found = list(pages(caller))
    assert len(found[0]["results"]) == 100
    assert found[0]["results"][0]["id"] == newest["id"]
    assert found[0]["next"].startswith(caller.url)
    ids = [result["id"] for page in found for result in page["results"]]
    assert len(ids) == len(set(ids)) > 105


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "input"),
        ({"input": "x"}, "input"),
        ({"input": {}}, "input.prompt"),
        ({"input": {"prompt": 5}}, "input.prompt"),
        ({"input": {"prompt": "hi", "max_tokens": "many"}}, "input.max_tokens"),
        ({"input": {"prompt": "hi", "top_p": 7}}, "input.top_p"),
        ({"input": {"messages": [{"role": "nobody", "content": "x"}]}}, "input.messages.0.role"),
        ({"input": {"prompt": "hi"}, "webhook": "https://169.254.169.254/"}, "webhook"),
        ({"input": {"auth": "r8_secret", "prompt": {"token": "r8_secret"}}}, "input.prompt"),
    ],
)
def test_a_wrong_input_is_422_and_names_its_field_without_quoting_it(
    caller: Caller, body: dict[str, Any], field: str
) -> None:
    """Traps 10 and 11."""
    before = caller.send("GET", "/v1/predictions").json()["results"][0]["id"]
    answer = caller.send("POST", "/v1/models/test/story/predictions", json=body)
    assert answer.status_code == 422
    assert answer.json()["status"] == 422
    assert answer.json()["invalid_fields"][0]["field"] == field
    assert "r8_secret" not in answer.text
    assert caller.send("GET", "/v1/predictions").json()["results"][0]["id"] == before


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/v1/models/nobody/nothing/predictions", 404),
        ("GET", "/v1/models/nobody/nothing", 404),
        ("GET", "/v1/models/test/story/versions/x", 404),
        ("GET", "/v1/predictions/unknown", 404),
        ("GET", "/v1/predictions/unknown/more", 404),
        ("GET", "/v1/trainings", 404),
        ("POST", "/v1/files", 501),
        ("PUT", "/v1/predictions", 405),
    ],
)
def test_every_refusal_is_a_problem_object(caller: Caller, method: str, path: str, status: int) -> None:
    answer = caller.send(method, path, **({"json": {"input": {"prompt": "hi"}}} if method == "POST" else {}))
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status
    assert answer.json()["detail"]
    assert answer.headers["x-should-retry"] == "false"


def test_a_missing_key_is_a_problem_object(caller: Caller) -> None:
    answer = httpx.get(f"{caller.url}/v1/predictions")
    assert (answer.status_code, answer.json()["title"]) == (401, "Unauthenticated")


def test_a_body_that_is_no_json_is_refused(caller: Caller) -> None:
    for body in (b"{", b"[]", b"5", b"[" * 100_000, b"\xff"):
        answer = caller.send("POST", "/v1/predictions", content=body)
        assert answer.status_code == 400


def test_a_lone_surrogate_in_a_prompt_is_echoed_and_streamed(caller: Caller) -> None:
    made = caller.send("POST", "/v1/models/test/echo/predictions", content=b'{"input": {"prompt": "a\\ud83d b"}}')
    assert made.status_code == 201
    assert made.json()["input"] == {"prompt": "a\ud83d b"}
    assert joined(caller.events(made.json())) == "a? b"


def test_a_model_of_two_parts_serves_both_kinds_of_client(caller: Caller) -> None:
    body = caller.send("GET", "/v1/models/test/story").json()
    assert (body["owner"], body["name"], body["id"], body["object"]) == ("test", "story", "test/story", "model")
    schema = body["latest_version"]["openapi_schema"]["components"]["schemas"]
    assert schema["Output"]["x-cog-array-type"] == "iterator"
    assert schema["Output"]["x-cog-array-display"] == "concatenate"
    voice = caller.send("GET", "/v1/models/test/voice").json()
    assert voice["latest_version"]["openapi_schema"]["components"]["schemas"]["Output"]["format"] == "uri"
    assert caller.send("GET", "/v1/models").json()["object"] == "list"
    assert caller.send("GET", "/v1/models/default").json()["id"] == "default"


def test_the_streaming_collection_names_what_streams(caller: Caller) -> None:
    """Mission row 73."""
    found = caller.send("GET", "/v1/collections/streaming-language-models").json()
    names = {f"{model['owner']}/{model['name']}" for model in found["models"]}
    assert "test/story" in names
    assert "test/voice" not in names


def test_a_voice_gives_one_file_and_no_stream(caller: Caller) -> None:
    """Mission row 55: `urls.stream` only for what can stream."""
    answer = caller.send(
        "POST",
        "/v1/models/test/voice/predictions",
        json={"input": {"text": "Hello there"}},
        headers={"prefer": "wait"},
    )
    body = answer.json()
    assert body["status"] == "succeeded"
    assert "stream" not in body["urls"]
    assert body["output"].startswith("data:audio/wav;base64,")


def test_a_host_that_is_no_host_is_not_repeated(caller: Caller) -> None:
    prediction = caller.create("story", headers={"host": "evil.example/path?x"})
    assert "evil" not in json.dumps(prediction["urls"])
