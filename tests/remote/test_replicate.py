"""Replicate's own ways: which prediction is made, how its stream is resumed, how it ends."""

from __future__ import annotations

from typing import Any

import pytest
from replicate.client import Client

from adapters.replicate import RECONNECTS
from adapters.replicate_target import trusted
from gateway.errors import (
    Cancelled,
    NotFound,
    Truncated,
    UpstreamError,
    UpstreamTimeout,
)
from gateway.events import Finished, FinishReason, Usage
from tests.remote.upstreams import (
    HELLO,
    KEY,
    TEXT,
    chat,
    outcome,
    provider_for,
    recorded,
)
from tests.upstreams.byte_server import Act, Answer, ByteServer, Framing, json_answer
from tests.upstreams.replicate_fake import (
    CANCELED,
    DONE,
    FAILED,
    ID,
    ReplicateFake,
    event_stream,
    output,
    replicate_fake,
)

VERSION = "9dcd6d78e7c6560c340d916fe32e9f24aabfa331e5cce95fe31f77fb03121426"
PIECES = [output(number, piece) for number, piece in enumerate(HELLO)]


async def answered(fake: ReplicateFake, **fields: Any) -> tuple[str, Finished | None, Exception | None]:
    provider = provider_for("replicate", fake.server.url)
    try:
        return await outcome(provider.stream(chat(**fields)))
    finally:
        await provider.aclose()


@pytest.mark.parametrize(
    ("model", "path", "version"),
    [
        ("meta/meta-llama-3-70b-instruct", "/v1/models/meta/meta-llama-3-70b-instruct/predictions", None),
        (f"meta/llama:{VERSION}", "/v1/predictions", VERSION),
        (VERSION, "/v1/predictions", VERSION),
        ("deployments/acme/chat", "/v1/deployments/acme/chat/predictions", None),
    ],
)
async def test_each_form_of_a_model_is_created_where_it_belongs(model: str, path: str, version: str | None) -> None:
    async with replicate_fake(event_stream(recorded("replicate"))) as fake:
        text, _, _ = await answered(fake, model=model)
    assert text == TEXT
    assert (fake.created.path, fake.created.json.get("version")) == (path, version)
    assert fake.created.json["stream"] is True
    assert fake.created.headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("model", ["llama", "../v1/account", "a/b/c", "meta/llama:", "meta/..", "", "a/b?x=1"])
async def test_what_names_no_model_is_not_asked_for(model: str) -> None:
    async with replicate_fake(event_stream()) as fake:
        _, _, error = await answered(fake, model=model)
    assert isinstance(error, NotFound)
    assert fake.server.requests == []


async def test_a_base_url_with_v1_means_the_same() -> None:
    async with replicate_fake(event_stream(recorded("replicate"))) as fake:
        provider = provider_for("replicate", fake.server.url + "/v1/")
        text, _, _ = await outcome(provider.stream(chat()))
        await provider.aclose()
    assert text == TEXT


async def test_the_stream_is_asked_for_with_the_key_and_as_events() -> None:
    async with replicate_fake(event_stream(recorded("replicate"))) as fake:
        await answered(fake)
        (request,) = fake.server.received("GET", "/streams/")
    assert request.headers["accept"] == "text/event-stream"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert "last-event-id" not in request.headers


async def test_a_stream_on_a_strange_host_is_never_opened_and_its_prediction_polled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("adapters.replicate.POLL_SECONDS", 0.001)
    polls = [
        {"status": "starting"},
        {"status": "processing", "output": ["Hello ", "안녕"]},
        {"status": "processing", "output": ["Hello ", "안녕"]},
        {"status": "succeeded", "output": list(HELLO), "metrics": {"output_token_count": 4}},
    ]
    async with (
        ByteServer({"*": lambda request: Answer(status=200)}) as stranger,
        replicate_fake(stream_url=f"{stranger.url}/v1/streams/x", polls=polls) as fake,
    ):
        text, finished, error = await answered(fake)
    assert (text, error) == ("Hello 안녕" + TEXT.removeprefix("Hello 안녕"), None)
    assert finished == Finished(FinishReason.STOP, Usage(output_tokens=4))
    assert stranger.requests == []


async def test_a_prediction_without_a_stream_is_polled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.replicate.POLL_SECONDS", 0.001)
    polls = [{"status": "processing", "output": None}, {"status": "succeeded", "output": "whole"}]
    async with replicate_fake(stream_url=None, polls=polls) as fake:
        text, finished, _ = await answered(fake)
    assert (text, finished is not None) == ("whole", True)


@pytest.mark.parametrize(
    ("url", "base_url", "expected"),
    [
        ("https://stream.replicate.com/v1/files/x", "https://api.replicate.com", True),
        ("https://api.replicate.com/v1/streams/x", "https://api.replicate.com", True),
        ("http://127.0.0.1:9/x", "http://127.0.0.1:9", True),
        ("http://stream.replicate.com/x", "https://api.replicate.com", False),
        ("https://evilreplicate.com/x", "https://api.replicate.com", False),
        ("https://replicate.com.evil.example/x", "https://api.replicate.com", False),
        ("https://replicate.com@evil.example/x", "https://api.replicate.com", False),
        ("https://stream.replicate.com/x", "https://gateway.example", False),
        ("http://127.0.0.1:10/x", "http://127.0.0.1:9", False),
        ("http://user:word@127.0.0.1:9/x", "http://127.0.0.1:9", False),
        ("https://user@stream.replicate.com/x", "https://api.replicate.com", False),
        ("http://169.254.169.254/latest", "https://api.replicate.com", False),
        ("file:///etc/passwd", "https://api.replicate.com", False),
        ("/v1/streams/x", "https://api.replicate.com", False),
        ("https://[", "https://api.replicate.com", False),
    ],
)
def test_the_key_is_for_the_own_origin_and_the_vendors_hosts(url: str, base_url: str, expected: bool) -> None:
    assert trusted(url, base_url) is expected


@pytest.mark.parametrize(
    ("ending", "expected", "words"),
    [
        (FAILED, UpstreamError, "Something went wrong"),
        (b'event: done\ndata: {"reason": "error"}\n\n', UpstreamError, "failed"),
        (FAILED.replace(b'{"reason": "error"}', b"{}"), UpstreamError, "Something went wrong"),
        (FAILED.partition(b"event: done")[0], UpstreamError, "Something went wrong"),
        (CANCELED, Cancelled, "cancelled there"),
        (b"event: done\ndata: no json\n\n", UpstreamError, "failed"),
    ],
)
async def test_text_before_a_failure_is_kept_and_the_failure_told(
    ending: bytes, expected: type[Exception], words: str
) -> None:
    async with replicate_fake(event_stream(b"".join(PIECES[:2]) + ending)) as fake:
        text, finished, error = await answered(fake)
    assert (text, finished) == ("".join(HELLO[:2]), None)
    assert type(error) is expected
    assert words in str(error)


async def test_a_cut_stream_is_resumed_after_the_last_event() -> None:
    first = event_stream(*PIECES[:2], PIECES[2][:-5], Act.DROP, framing=Framing.CLOSE)
    async with replicate_fake(first, event_stream(*PIECES[2:], DONE)) as fake:
        text, finished, error = await answered(fake)
        _, resumed = fake.server.received("GET", "/streams/")
    assert (text, error) == (TEXT, None)
    assert finished is not None
    assert resumed.headers["last-event-id"] == "1795984714:1"


async def test_a_stream_may_be_cut_often_while_it_goes_on() -> None:
    cuts = [event_stream(piece, framing=Framing.CLOSE) for piece in PIECES]
    async with replicate_fake(*cuts, event_stream(DONE)) as fake:
        text, finished, error = await answered(fake)
        assert len(fake.server.received("GET", "/streams/")) == len(PIECES) + 1 > RECONNECTS + 1
    assert (text, error) == (TEXT, None)
    assert finished is not None


async def test_a_stream_that_is_none_is_named() -> None:
    async with replicate_fake(Answer([recorded("replicate")], headers={"content-type": "text/html"})) as fake:
        text, _, error = await answered(fake)
        assert len(fake.cancels) == 1
    assert (text, type(error)) == ("", UpstreamError)
    assert "text/html instead of an event stream" in str(error)


async def test_a_server_that_repeats_everything_does_not_double_the_text() -> None:
    first = event_stream(*PIECES[:3], Act.RESET)
    async with replicate_fake(first, event_stream(recorded("replicate"))) as fake:
        text, finished, error = await answered(fake)
    assert (text, error) == (TEXT, None)
    assert finished is not None


async def test_the_tail_of_a_finished_prediction_is_taken_from_its_output() -> None:
    cut = event_stream(output(0, "a\nb"), framing=Framing.CLOSE)
    done = {"status": "succeeded", "output": ["a\r\nb", "c"]}
    async with replicate_fake(cut, prediction=done) as fake:
        text, finished, error = await answered(fake)
        assert fake.cancels == []
    assert (text, error) == ("a\nbc", None)
    assert finished is not None


@pytest.mark.parametrize(
    "prediction",
    [
        {"status": "succeeded", "output": ["something else"]},
        {"status": "succeeded", "output": None, "data_removed": True},
        {"status": "processing"},
    ],
)
async def test_a_cut_that_nothing_makes_good_is_truncated(prediction: dict[str, Any]) -> None:
    async with replicate_fake(event_stream(*PIECES[:2], framing=Framing.CLOSE), prediction=prediction) as fake:
        text, finished, error = await answered(fake)
        connections = len(fake.server.received("GET", "/streams/"))
    assert (text, finished) == ("".join(HELLO[:2]), None)
    assert isinstance(error, Truncated)
    assert connections == (1 + RECONNECTS if prediction["status"] == "processing" else 1)


async def test_a_stream_without_ids_is_not_begun_again() -> None:
    async with replicate_fake(event_stream(b"event: output\ndata: a\n\n", framing=Framing.CLOSE)) as fake:
        text, _, error = await answered(fake)
        assert len(fake.server.received("GET", "/streams/")) == 1
    assert text == "a"
    assert isinstance(error, Truncated)


async def test_a_time_limit_is_waited_out_while_the_prediction_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.replicate.POLL_SECONDS", 0.001)
    limit = event_stream(b":408: 408 Request Timeout\n\n")
    async with replicate_fake(*[limit] * 6, event_stream(recorded("replicate"))) as fake:
        text, finished, error = await answered(fake)
    assert (text, error) == (TEXT, None)
    assert finished is not None


async def test_a_time_limit_of_a_prediction_that_is_gone_is_a_timeout() -> None:
    async with replicate_fake(event_stream(b":408: 408 Request Timeout\n\n")) as fake:
        answer = fake.answer
        fake.server.routes["*"] = lambda request: (
            json_answer({"detail": "gone"}, 404) if request.method == "GET" and ID in request.path else answer(request)
        )
        _, finished, error = await answered(fake)
    assert finished is None
    assert isinstance(error, UpstreamTimeout)
    assert not error.retryable


async def test_token_counts_come_from_the_metrics() -> None:
    done = {"status": "succeeded", "metrics": {"input_token_count": 21, "output_token_count": 9, "predict_time": 1.0}}
    async with replicate_fake(event_stream(recorded("replicate")), prediction=done) as fake:
        _, finished, _ = await answered(fake)
    assert finished == Finished(FinishReason.STOP, Usage(input_tokens=21, output_tokens=9))


@pytest.mark.parametrize(
    ("status", "text", "expected"),
    [
        ("succeeded", "done", type(None)),
        ("failed", "", UpstreamError),
        ("canceled", "", Cancelled),
        ("aborted", "", Cancelled),
    ],
)
async def test_an_answer_that_has_ended_needs_no_stream(status: str, text: str, expected: type) -> None:
    create = json_answer({"id": ID, "status": status, "output": ["do", "ne"], "error": "boom"}, 201)
    async with replicate_fake(event_stream(), create=create) as fake:
        said, _, error = await answered(fake)
        assert fake.server.received("GET", "/streams/") == []
        assert fake.cancels == []
    assert said == text
    assert isinstance(error, expected)


async def test_replicates_own_client_reads_the_fake_as_we_do() -> None:
    async with replicate_fake(event_stream(recorded("replicate"))) as fake:
        client = Client(api_token="any", base_url=fake.server.url)
        events = await client.async_stream("meta/llama", input={"prompt": "Hi"})
        text = "".join([str(event) async for event in events])
        await client._async_client.aclose()
    assert text == TEXT
    assert fake.created.json == {"input": {"prompt": "Hi"}, "stream": True}
