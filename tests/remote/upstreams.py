"""The three remote providers, each before a fake of its vendor that speaks given bytes. For tests that hold for all."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

from adapters import build
from gateway.config import ProviderRow, ProviderType, Settings
from gateway.errors import GatewayError
from gateway.events import Delta, Finished, TextDelta
from gateway.patience import Patience
from gateway.ports import ChatProvider
from gateway.request import ChatRequest, Role, text_message
from gateway.streams import EventStream, open_stream
from gateway.telemetry import Meter
from tests.upstreams.byte_server import Answer, ByteServer, Request, json_answer
from tests.upstreams.replicate_fake import DONE, output, replicate_fake

KINDS: tuple[ProviderType, ...] = ("replicate", "cog", "opensearch")
KEY = "sk-canary-4f1d9c77e0b2"
HELLO = ("Hello ", "안녕하세요", " ", "👋🏽", "\n\nbye")
TEXT = "".join(HELLO)
EVENT_STREAM = {"content-type": "text/event-stream"}


@dataclass
class Upstream:
    """A provider and the server behind it."""

    kind: ProviderType
    provider: ChatProvider
    server: ByteServer

    async def stream_request(self) -> Request:
        """The request whose connection carries the text."""
        method, part = {"replicate": ("GET", "/streams/"), "cog": ("PUT", "/"), "opensearch": ("POST", "/stream")}[
            self.kind
        ]
        return await self.server.wait_for(method, part)

    def events(self, **fields: Any) -> AsyncGenerator[Delta | Finished, None]:
        """A stream of the provider itself."""
        return self.provider.stream(chat(self.kind, **fields))

    def opened(self, retries: int = 0, first_event: float = 5) -> AbstractAsyncContextManager[EventStream[Any]]:
        """A stream as wires open it."""
        meter = Meter("test", "model", self.provider.name)
        return open_stream(self.events, model="model", meter=meter, patience=Patience(first_event, 5, retries))


def chat(kind: str = "replicate", **fields: Any) -> ChatRequest:
    """A question to the kind's usual model."""
    model = "meta/llama" if kind == "replicate" else "AlI3QZcB-tBcnGSI1JlH"
    given = {"model": model, "messages": (text_message(Role.USER, "Hi"),), **fields}
    return ChatRequest(**given)


def recorded(kind: str, pieces: tuple[str, ...] = HELLO) -> bytes:
    """The bytes of a whole stream that says `pieces`."""
    if kind == "replicate":
        return b"".join(output(number, piece) for number, piece in enumerate(pieces)) + DONE
    if kind == "cog":
        return b"".join(
            [
                b'event: start\ndata: {"id":"p","status":"processing"}\n\n',
                *(_cog_output(number, piece) for number, piece in enumerate(pieces)),
                b'event: completed\ndata: {"id":"p","metrics":{"input_token_count":3,"output_token_count":5},'
                b'"status":"succeeded"}\n\n',
            ]
        )
    return b"".join([*(frame(piece) for piece in pieces), frame("", last=True)])


def _cog_output(number: int, piece: str) -> bytes:
    return f'event: output\ndata: {{"chunk":{_quoted(piece)},"index":{number}}}\n\n'.encode()


def frame(content: str, *, last: bool = False) -> bytes:
    """One frame of ML Commons, byte for byte as the cluster writes it."""
    return (
        'data: {"inference_results":[{"output":[{"name":"response","dataAsMap":'
        f'{{"content":{_quoted(content)},"is_last":{str(last).lower()}}}}}]}}]}}\n\n'
    ).encode()


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


@asynccontextmanager
async def upstream(kind: ProviderType, *streams: Answer, refusal: Answer | None = None) -> AsyncIterator[Upstream]:
    """The provider of `kind`. Its texts come from `streams` in order, the last one again and again.

    `refusal` is what its request for a text is answered with instead.
    """
    async with _server(kind, streams, refusal) as server:
        provider = provider_for(kind, server.url)
        try:
            yield Upstream(kind, provider, server)
        finally:
            await provider.aclose()


def provider_for(kind: ProviderType, base_url: str, **fields: Any) -> ChatProvider:
    """A provider whose secrets are in the environment as `KEY` (conftest.py)."""
    credentials = (
        {"username_env": "REMOTE_USER_NAME", "password_env": "REMOTE_KEY"}
        if kind == "opensearch"
        else {"api_key_env": "REMOTE_KEY"}
    )
    row = ProviderRow.model_validate({"name": "far", "type": kind, "base_url": base_url, **credentials, **fields})
    return cast(ChatProvider, build(row, "chat", Settings(providers=(row,), models=())))


@asynccontextmanager
async def _server(kind: str, streams: tuple[Answer, ...], refusal: Answer | None) -> AsyncIterator[ByteServer]:
    if kind == "replicate":
        async with replicate_fake(*streams, create=refusal) as fake:
            yield fake.server
        return
    waiting = list(streams)
    cancelled: set[str] = set()

    def answer(request: Request) -> Answer:
        if request.method == ("PUT" if kind == "cog" else "POST") and not request.path.endswith("/cancel"):
            return refusal or (waiting.pop(0) if len(waiting) > 1 else waiting[0])
        if request.path.endswith("/cancel"):
            known = request.path not in cancelled
            cancelled.add(request.path)
            return json_answer({}, 200 if known else 404)
        if kind == "cog":
            return json_answer({}, 503)
        return json_answer({"name": "m", "algorithm": "REMOTE", "connector": {"protocol": "http", "parameters": {}}})

    async with ByteServer({"*": answer}) as server:
        yield server


async def outcome(
    events: AsyncGenerator[Delta | Finished, None],
) -> tuple[str, Finished | None, GatewayError | None]:
    """The text, the terminal event and the failure of a stream, read to its end."""
    pieces: list[str] = []
    finished = None
    try:
        async with aclosing(events):
            async for event in events:
                assert finished is None
                if isinstance(event, TextDelta):
                    pieces.append(event.text)
                elif isinstance(event, Finished):
                    finished = event
    except GatewayError as error:
        return "".join(pieces), finished, error
    return "".join(pieces), finished, None
