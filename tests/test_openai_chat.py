"""The HTTP transport and chat through `openai` rows: what the contract suite does not ask of every provider."""

from __future__ import annotations

import asyncio
import json
import time
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from adapters import http
from adapters.http import HttpUpstream, read, read_whole
from adapters.http_errors import retry_after
from adapters.openai_chat import OpenAIChat
from gateway.config import ProviderRow, Settings
from gateway.errors import (
    GatewayError,
    RateLimited,
    Truncated,
    UpstreamError,
    UpstreamUnavailable,
)
from gateway.events import Delta, Finished, FinishReason, TextDelta, Usage
from gateway.request import (
    ChatRequest,
    Image,
    Message,
    Role,
    Sampling,
    Text,
    text_message,
)
from tests.upstreams import openai_streams as streams
from tests.upstreams.byte_server import (
    Act,
    Answer,
    ByteServer,
    Framing,
    Route,
    Step,
    json_answer,
)
from tests.upstreams.certificates import self_signed

CHAT = "/v1/chat/completions"
REQUEST = ChatRequest("m", (text_message(Role.USER, "Say hello."),))
SAID = [*map(TextDelta, streams.PIECES), Finished(FinishReason.STOP, Usage(input_tokens=9, output_tokens=3))]


@asynccontextmanager
async def chatting(route: Route, **fields: Any) -> AsyncIterator[tuple[OpenAIChat, ByteServer]]:
    async with ByteServer({CHAT: route}) as server:
        row = ProviderRow(name="up", type="openai", base_url=f"{server.url}/v1", **fields)
        provider = OpenAIChat(row, Settings())
        try:
            yield provider, server
        finally:
            await provider.aclose()


async def said(provider: OpenAIChat, request: ChatRequest = REQUEST) -> list[Delta | Finished]:
    return [event async for event in provider.stream(request)]


async def failure(route: Route, **fields: Any) -> GatewayError:
    async with chatting(route, **fields) as (provider, _):
        with pytest.raises(GatewayError) as raised:
            await said(provider)
    return raised.value


@pytest.mark.parametrize("server", streams.SERVERS)
async def test_every_server_says_the_same(server: str) -> None:
    async with chatting(Answer((streams.SERVERS[server],))) as (provider, _):
        assert await said(provider) == SAID


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/octet-stream"])
async def test_a_stream_is_known_without_its_content_type(content_type: str) -> None:
    headers = {"content-type": content_type} if content_type else {}
    async with chatting(Answer((streams.OPENAI,), headers=headers, cut=1)) as (provider, _):
        assert await said(provider) == SAID


@pytest.mark.parametrize("content_type", ["application/json", "text/plain"])
async def test_a_server_that_does_not_stream_is_read_all_the_same(content_type: str) -> None:
    answer = Answer((streams.WHOLE,), headers={"content-type": content_type}, framing=Framing.LENGTH, cut=100)
    async with chatting(answer) as (provider, _):
        assert await said(provider) == [TextDelta(streams.SAID), SAID[-1]]


@pytest.mark.parametrize("before", [b"\n", b" \r\n" * 10])
async def test_white_space_that_keeps_a_connection_alive_is_no_answer_yet(before: bytes) -> None:
    headers = {"content-type": "application/json"}
    async with chatting(Answer((before, 0.01, streams.WHOLE), headers=headers)) as (provider, _):
        assert await said(provider) == [TextDelta(streams.SAID), SAID[-1]]


async def test_json_lines_are_a_stream() -> None:
    pieces = streams.LMI_LINES.splitlines(keepends=True)
    answer = Answer([*pieces[:3], Act.HANG], headers={"content-type": "application/jsonlines"})
    async with chatting(answer) as (provider, _):
        events = provider.stream(REQUEST)
        assert [await anext(events), await anext(events)] == [TextDelta("Hel"), TextDelta("lo ")]
        await events.aclose()
    async with chatting(Answer(pieces, headers={"content-type": "application/jsonlines"}, cut=1)) as (provider, _):
        assert await said(provider) == SAID


async def test_the_request_says_what_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UP_KEY", "sk-canary-up")
    fields = {"api_key_env": "UP_KEY", "max_tokens_field": "max_completion_tokens"}
    async with chatting(Answer((streams.OPENAI,)), **fields) as (provider, server):
        await said(provider, ChatRequest("m", REQUEST.messages, sampling=Sampling(max_tokens=7)))
        [request] = server.requests
    assert json.loads(request.body) == {
        "model": "m",
        "messages": [{"role": "user", "content": "Say hello."}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_completion_tokens": 7,
    }
    assert request.headers["authorization"] == "Bearer sk-canary-up"
    assert request.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("steps", [(streams.OPENAI,), (streams.OPENAI, 0.01)], ids=["at once", "end a moment later"])
async def test_a_connection_serves_one_answer_after_the_other(steps: tuple[Step, ...]) -> None:
    async with chatting(Answer(steps)) as (provider, server):
        for _ in range(5):
            assert await said(provider) == SAID
        assert server.accepted == 1


async def test_a_body_that_goes_on_after_its_end_does_not_hold_up_the_answer() -> None:
    async with chatting(Answer((streams.OPENAI, Act.HANG))) as (provider, server), asyncio.timeout(1):
        assert await said(provider) == SAID
        await server.requests[0].gone.wait()


@pytest.mark.parametrize("act", [Act.DROP, Act.RESET])
async def test_a_connection_that_ends_without_an_answer_is_worth_another_try(act: Act) -> None:
    error = await failure(Answer(before_head=act))
    assert isinstance(error, UpstreamUnavailable)
    assert error.retryable


async def test_a_large_request_goes_out_whole() -> None:
    image = "data:image/png;base64," + "A" * 3_000_000
    request = ChatRequest("m", (Message(Role.USER, (Text("look"), Image(image))),))
    async with chatting(Answer((streams.OPENAI,))) as (provider, server):
        assert await said(provider, request) == SAID
        assert json.loads(server.requests[0].body)["messages"][0]["content"][1]["image_url"]["url"] == image


async def test_a_refusal_that_stalls_is_told_by_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "ERROR_BODY_SECONDS", 0.05)
    error = await failure(Answer((b'{"error":', Act.HANG), status=429, headers={"retry-after": "3"}))
    assert isinstance(error, RateLimited)
    assert error.retry_after == 3


async def test_a_redirect_is_not_followed() -> None:
    async with ByteServer({}) as elsewhere:
        error = await failure(json_answer(b"{}", 307, location=f"{elsewhere.url}/v1/chat/completions"))
        assert elsewhere.requests == []
    assert (error.status, error.message) == (502, "Provider 'up' answered with status 307.")


async def test_a_certificate_of_the_rows_own_authority_is_trusted(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    async with ByteServer({CHAT: Answer((streams.OPENAI,))}, tls=self_signed(file)) as server:
        row = ProviderRow(name="up", type="openai", base_url=f"{server.url}/v1", ca_file=file)
        provider = OpenAIChat(row, Settings())
        assert await said(provider) == SAID
        await provider.aclose()


@pytest.mark.parametrize("url", ["http://", "http://user:pa55word@[::bad/v1"])
async def test_an_impossible_base_url_is_told_without_its_password(url: str) -> None:
    provider = OpenAIChat(ProviderRow(name="up", type="openai", base_url=url), Settings())
    with pytest.raises(UpstreamError, match="base_url") as raised:
        await said(provider)
    assert "pa55word" not in "".join(traceback.format_exception(raised.value))
    await provider.aclose()


async def test_a_key_that_no_header_can_hold_is_told_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UP_KEY", "sk-canary-bro\nken")
    error = await failure(Answer((streams.OPENAI,)), api_key_env="UP_KEY")
    assert "its key" in error.message
    assert "sk-canary-bro" not in "".join(traceback.format_exception(error))


def test_a_row_whose_key_is_not_set_says_which_variable() -> None:
    row = ProviderRow(name="up", type="openai", api_key_env="NO_SUCH_KEY")
    with pytest.raises(UpstreamError, match="NO_SUCH_KEY"):
        OpenAIChat(row, Settings())


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after-ms": "inf"}, None),
        ({"retry-after-ms": "nan"}, None),
        ({"retry-after": "9" * 400}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def test_retry_after_as_a_date() -> None:
    seconds = retry_after({"retry-after": formatdate(time.time() + 30, usegmt=True)})
    assert seconds == pytest.approx(30, abs=2)


async def test_json_that_is_none_and_json_that_breaks_off() -> None:
    routes = {
        "/not": json_answer(b"<html>"),
        "/cut": Answer((b'{"a":1}',), framing=Framing.LENGTH, truncated_at=3),
        "/good": json_answer(b'{"a":1}'),
    }
    async with ByteServer(routes) as server:
        upstream = HttpUpstream(ProviderRow(name="up", type="openai"), server.url)
        assert await upstream.post_json("/good", {"q": "한글"}) == {"a": 1}
        with pytest.raises(UpstreamError, match="not JSON"):
            await upstream.post_json("/not", {})
        with pytest.raises(Truncated):
            await upstream.post_json("/cut", {})
        await upstream.aclose()
    assert json.loads(server.requests[0].body) == {"q": "한글"}


async def test_a_body_over_the_limit_is_refused() -> None:
    async with ByteServer({"/big": json_answer(b"x" * 100_000)}) as server:
        row = ProviderRow(name="up", type="openai")
        upstream = HttpUpstream(row, server.url)
        with pytest.raises(UpstreamError, match="more than 1000 bytes"):
            async with upstream.send("GET", "/big") as response:
                await read_whole(response, row, 1000)
        await upstream.aclose()


async def test_what_arrived_with_the_break_is_read_before_the_break_is_told() -> None:
    async with ByteServer({"/cut": Answer((b"Hel", b"lo", Act.DROP))}) as server:
        row = ProviderRow(name="up", type="openai")
        upstream = HttpUpstream(row, server.url)
        async with upstream.send("GET", "/cut") as response:
            await server.without_connections()
            pieces = read(response, row)
            assert await anext(pieces) == b"Hello"
            with pytest.raises(Truncated):
                await anext(pieces)
        await upstream.aclose()
