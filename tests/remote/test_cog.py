"""Cog's own protocol: against a genuine Cog server, and against bytes that one sends only on a bad day."""

from __future__ import annotations

import asyncio
import json
import shutil
from contextlib import aclosing
from pathlib import Path

import pytest

from gateway.errors import (
    Cancelled,
    InvalidRequest,
    RateLimited,
    Truncated,
    UpstreamError,
    UpstreamUnavailable,
)
from gateway.events import Finished, FinishReason, Usage
from gateway.request import Role, Sampling, text_message
from tests.remote.upstreams import (
    EVENT_STREAM,
    TEXT,
    chat,
    outcome,
    provider_for,
    upstream,
)
from tests.upstreams.byte_server import Act, Answer, ByteServer, Request, json_answer
from tests.upstreams.cog_server import MODEL, cog_server, health

START = b'event: start\ndata: {"id":"p","status":"processing"}\n\n'
OUTPUT = b'event: output\ndata: {"chunk":"a","index":0}\n\n'


async def test_a_genuine_server_streams_whole_text(cog_url: str) -> None:
    messages = (text_message(Role.SYSTEM, "> "), text_message(Role.USER, TEXT + "\u2028\u0085\r\nend"))
    provider = provider_for("cog", cog_url)
    text, finished, error = await outcome(provider.stream(chat("cog", messages=messages)))
    await provider.aclose()
    expected = f"> {TEXT}\u2028\u0085\r\nend"
    assert (text, error) == (expected, None)
    assert finished == Finished(FinishReason.STOP, Usage(output_tokens=len(expected)))


async def test_a_genuine_server_is_sent_the_fields_of_its_schema(cog_url: str) -> None:
    provider = provider_for("cog", cog_url)
    request = chat("cog", messages=(text_message(Role.USER, "abcdef"),), sampling=Sampling(max_tokens=3, top_p=0.1))
    text, _, _ = await outcome(provider.stream(request))
    await provider.aclose()
    assert text == "abc"


async def test_a_genuine_failure_comes_after_the_text(cog_url: str) -> None:
    provider = provider_for("cog", cog_url)
    text, finished, error = await outcome(provider.stream(chat("cog", messages=(text_message(Role.USER, "fail"),))))
    await provider.aclose()
    assert (text, finished) == ("f", None)
    assert isinstance(error, UpstreamError)
    assert "boom" in error.message


async def test_a_genuine_server_says_what_is_wrong_with_the_input(cog_url: str) -> None:
    provider = provider_for("cog", cog_url)
    _, _, error = await outcome(provider.stream(chat("cog", extra={"max_tokens": "many"})))
    await provider.aclose()
    assert isinstance(error, InvalidRequest)
    assert "body.input.max_tokens" in error.message


async def until(url: str, status: str) -> None:
    async with asyncio.timeout(5):
        while await asyncio.to_thread(health, url) != status:
            continue


@pytest.mark.parametrize("prompt", ["slow", "silent"])
async def test_leaving_frees_a_genuine_server_at_once(cog_url: str, prompt: str) -> None:
    provider = provider_for("cog", cog_url)
    async with aclosing(provider):
        reader = asyncio.create_task(outcome(provider.stream(chat("cog", messages=(text_message(Role.USER, prompt),)))))
        await until(cog_url, "BUSY")
        _, _, busy = await outcome(provider.stream(chat("cog")))
        assert isinstance(busy, RateLimited)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        left = asyncio.get_running_loop().time()
        await until(cog_url, "READY")
        assert asyncio.get_running_loop().time() - left < 2
        assert (await outcome(provider.stream(chat("cog"))))[0] == "Hi"


async def test_a_cancellation_that_the_server_forgets_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.cog.CANCEL_PAUSES", (0.0, 0.0, 0.0))
    statuses = [200, 200, 404]

    def answer(request: Request) -> Answer:
        if request.path.endswith("/cancel"):
            return json_answer({}, statuses.pop(0))
        return Answer(before_head=Act.HANG) if request.method == "PUT" else json_answer({}, 503)

    async with ByteServer({"*": answer}) as server:
        provider = provider_for("cog", server.url)
        reader = asyncio.create_task(outcome(provider.stream(chat("cog"))))
        request = await server.wait_for("PUT", "/predictions/")
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        await provider.aclose()
    assert [sent.path for sent in server.received("POST", "/cancel")] == [f"{request.path}/cancel"] * 3


async def test_a_genuine_model_that_does_not_stream_is_asked_for_its_whole_result(tmp_path: Path) -> None:
    shutil.copytree(MODEL, tmp_path / "model")
    document = tmp_path / "model/.cog/openapi_schema.json"
    schema = json.loads(document.read_text())
    del schema["paths"]["/predictions"]["post"]["x-cog-streaming"]
    document.write_text(json.dumps(schema))
    with cog_server(tmp_path / "model") as url:
        provider = provider_for("cog", url)
        text, finished, error = await outcome(provider.stream(chat("cog")))
        await provider.aclose()
    assert (text, error) == ("Hi", None)
    assert finished == Finished(FinishReason.STOP, Usage(output_tokens=2))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (START + OUTPUT + b'event: output\ndata: {"chunk":"c","index":2}\n\n', Truncated),
        (START + OUTPUT + b'event: error\ndata: {"error":"SSE stream lagged; events were dropped"}\n\n', Truncated),
        (START + OUTPUT + b'event: completed\ndata: {"status":"canceled"}\n\n', Cancelled),
        (START + OUTPUT + b'event: completed\ndata: {"status":"failed"}\n\n', UpstreamError),
        (START + OUTPUT + b"event: completed\ndata: []\n\n", UpstreamError),
        (START + OUTPUT + b'event: output\ndata: {"chunk":{"a":1},"index":1}\n\n', UpstreamError),
        (START + OUTPUT + b"event: output\ndata: {\n\n", UpstreamError),
        (START + OUTPUT, Truncated),
    ],
)
async def test_a_bad_end_keeps_the_text_and_is_no_success(body: bytes, expected: type[Exception]) -> None:
    async with upstream("cog", Answer([body], headers=EVENT_STREAM)) as remote:
        text, finished, error = await outcome(remote.events())
    assert (text, finished) == ("a", None)
    assert type(error) is expected


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        (json_answer({"error": "At capacity - all prediction slots busy", "status": "failed"}, 409), RateLimited),
        (json_answer({"error": "Setup has not finished", "status": "failed"}, 503), UpstreamUnavailable),
    ],
)
async def test_a_refusal_may_be_tried_again_and_cancels_nothing(refusal: Answer, expected: type[Exception]) -> None:
    async with upstream("cog", Answer(), refusal=refusal) as remote:
        _, _, error = await outcome(remote.events())
        await remote.provider.aclose()
        assert remote.server.received("POST", "/cancel") == []
    assert isinstance(error, expected)
    assert getattr(error, "retryable", False)


async def test_a_connection_that_breaks_after_the_request_is_not_tried_again() -> None:
    async with upstream("cog", Answer(before_head=Act.RESET)) as remote:
        _, _, error = await outcome(remote.events())
        cancel = await remote.server.wait_for("POST", "/cancel")
    assert not getattr(error, "retryable", True)
    assert cancel.path.removesuffix("/cancel") == remote.server.received("PUT", "/predictions/")[0].path
