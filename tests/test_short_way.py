"""Tokens that pass from the upstream's socket to the client's while the response's task sleeps: none is lost, doubled
or out of order, and the end, a failure and a departure are what they are on the long way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
from starlette.types import Message

from adapters.openai_chat import OpenAIChat
from adapters.resuming import whole_chunks
from gateway.config import Limits, ProviderRow, Settings
from gateway.errors import InternalError, Truncated
from gateway.patience import Patience
from gateway.request import ChatRequest, Role, text_message
from gateway.streams import EventStream, open_stream
from gateway.telemetry import Meter
from tests.upstreams.byte_server import Act, Answer, ByteServer, Framing
from tests.upstreams.openai_streams import DONE, chunk
from wires.base import StreamResponse
from wires.openai.chat import ChunkEncoder
from wires.openai.errors import WIRE
from wires.response_body import SHORT_WAY

pytestmark = pytest.mark.usefixtures("few_or_a_crowd")

REQUEST = ChatRequest("m", (text_message(Role.USER, "Say hello."),))
TEXTS = [f"piece {number} 안녕 👋🏽" for number in range(30)]


class Client:
    """Takes a response by both ways, and knows by which each part came."""

    def __init__(self) -> None:
        self.parts: list[tuple[str, bytes]] = []
        self.open, self.complete = True, False
        self._came = asyncio.Event()

    def received(self) -> bytes | None:
        return None

    def ready(self) -> bool:
        return self.open

    flows = ready

    def put(self, data: bytes, *, last: bool = False) -> None:
        self._take("short", data)

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            self.complete = not message.get("more_body", False)
            self._take("long", message["body"])

    def _take(self, way: str, data: bytes) -> None:
        self.parts.append((way, data))
        self._came.set()

    async def until(self, text: str) -> None:
        async with asyncio.timeout(5):
            while text not in self.text:
                self._came.clear()
                await self._came.wait()

    @property
    def events(self) -> list[Any]:
        body = b"".join(data for _, data in self.parts).decode()
        return [
            json.loads(data) if data != "[DONE]" else data for data in body.replace("data: ", "").split("\n\n")[:-1]
        ]

    @property
    def text(self) -> str:
        deltas = [event["choices"][0]["delta"] for event in self.events if "choices" in event]
        return "".join(delta.get("content", "") for delta in deltas)

    @property
    def ways(self) -> set[str]:
        """By which ways parts with text came."""
        return {way for way, data in self.parts if b"piece" in data}


@asynccontextmanager
async def responding(
    client: Client, *steps: Any, idle: float = 60.0
) -> AsyncIterator[tuple[asyncio.Task[None], ByteServer, list[EventStream[Any]]]]:
    """A response to `client`, whose upstream writes `steps`; its task, the upstream, and the stream once it is open."""
    streams: list[EventStream[Any]] = []
    async with ByteServer({"/v1/chat/completions": Answer(list(steps))}) as server:
        provider = OpenAIChat(ProviderRow(name="up", type="openai", base_url=f"{server.url}/v1"), Settings())

        @asynccontextmanager
        async def stream() -> AsyncIterator[EventStream[Any]]:
            meter = Meter("test", "model", "up")
            async with open_stream(
                lambda: provider.stream(REQUEST), model="m", meter=meter, patience=Patience(idle=idle)
            ) as events:
                streams.append(events)
                yield events

        response = StreamResponse(WIRE, stream, ChunkEncoder(include_usage=False), limits=Limits())
        scope = {"type": "http", SHORT_WAY: client}
        task = asyncio.create_task(response(scope, asyncio.Event().wait, client.send))  # type: ignore[arg-type]  # nobody asks it
        try:
            yield task, server, streams
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await provider.aclose()


def cut(body: bytes, size: int) -> list[Any]:
    """`body` in writes of `size` bytes, each of which arrives by itself."""
    return [step for at in range(0, len(body), size) for step in (body[at : at + size], 0.0)]


@pytest.mark.parametrize("size", [1, 7, 100, 1000, 100_000])
async def test_however_the_bytes_are_cut_the_text_arrives_whole(size: int) -> None:
    client = Client()
    body = b"".join(chunk({"content": text}) for text in TEXTS) + chunk({}, "stop") + DONE
    async with responding(client, *cut(body, size)) as (task, _, _):
        await asyncio.wait_for(task, 10)
    assert client.text == "".join(TEXTS)
    assert client.events[-1] == "[DONE]"
    assert client.complete
    assert client.parts[-1] == ("long", b"")
    if size <= 1000:
        assert "short" in client.ways


async def test_a_client_that_does_not_read_gets_the_rest_by_the_long_way() -> None:
    client = Client()
    go_on = asyncio.Event()
    pieces = [chunk({"content": text}) for text in TEXTS]
    steps = [pieces[0], 0.01, pieces[1], 0.01, go_on, *(step for piece in pieces[2:] for step in (piece, 0.001)), DONE]
    async with responding(client, *steps) as (task, _, _):
        await client.until(TEXTS[1])
        client.open = False
        go_on.set()
        await asyncio.wait_for(task, 10)
    assert client.text == "".join(TEXTS)
    assert client.ways == {"short", "long"}


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (b"data: {no json\n\n", "not a chat completion"),
        (b'data: {"error": {"message": "boom", "code": 429}}\n\n', "boom"),
        (chunk({"content": "piece 2"}) + b"data: 7\n\n", "not a chat completion"),
        (Act.DROP, ""),
        (Act.RESET, ""),
    ],
)
async def test_a_failure_is_said_once_after_all_that_came_before(last: Any, said: str) -> None:
    client = Client()
    async with responding(client, chunk({"content": "piece 0"}), 0.01, chunk({"content": "piece 1"}), 0.01, last) as (
        task,
        _,
        streams,
    ):
        await asyncio.wait_for(task, 10)
        outcome = streams[0].meter.outcome
    assert client.text.startswith("piece 0piece 1")
    assert ("piece 2" in client.text) is (isinstance(last, bytes) and b"piece 2" in last)
    errors = [event["error"] for event in client.events if "error" in event]
    assert len(errors) == 1
    assert said in errors[0]["message"]
    assert client.events[-1] == "[DONE]" or "error" in client.events[-1]
    assert "short" in client.ways
    assert outcome in ("failed", "truncated")


async def test_what_comes_the_short_way_is_no_silence() -> None:
    client = Client()
    steps = [step for text in TEXTS[:8] for step in (chunk({"content": text}), 0.1)]
    async with responding(client, *steps, Act.HANG, idle=0.4) as (task, _, _):
        await asyncio.wait_for(task, 10)
    assert client.text == "".join(TEXTS[:8])
    assert "sent nothing for 0.4 s" in client.events[-1]["error"]["message"]


async def test_leaving_closes_the_upstream() -> None:
    client = Client()
    async with responding(client, chunk({"content": "piece 0"}), 0.01, chunk({"content": "piece 1"}), Act.HANG) as (
        task,
        server,
        streams,
    ):
        await client.until("piece 1")
        task.cancel()
        async with asyncio.timeout(5):
            await server.requests[0].gone.wait()
        await asyncio.wait([task])
        assert streams[0].meter.outcome == "cancelled"
    assert not client.complete


async def test_a_stream_that_is_stopped_takes_nothing_more() -> None:
    client = Client()
    go_on = asyncio.Event()
    steps = [chunk({"content": "piece 0"}), 0.01, chunk({"content": "piece 1"}), go_on, chunk({"content": "piece 2"})]
    async with responding(client, *steps, Act.HANG) as (task, _, streams):
        await client.until("piece 1")
        streams[0].stop(InternalError("Stopped."))
        go_on.set()
        await asyncio.wait_for(task, 10)
    assert client.text == "piece 0piece 1"
    assert client.events[-1]["error"]["message"] == "Stopped."


def chunked(random: Random, body: bytes) -> bytes:
    """`body` in HTTP chunks of any size, some with extensions, zeros before their size or capital digits."""
    sent = b""
    while body:
        size = random.choice((1, 2, 15, 16, 17, 120, 121, 250, 4000))
        part, body = body[:size], body[size:]
        digits = random.choice(("%x", "%X", "%04x", "%x;name=value")) % len(part)
        sent += digits.encode() + b"\r\n" + part + b"\r\n"
    return sent + b"0\r\n" + random.choice((b"", b"Trailer: 1\r\n")) + b"\r\n"


@pytest.mark.parametrize("status", [200, 204])
async def test_an_answer_without_a_body_is_truncated(status: int) -> None:
    async with ByteServer({"*": Answer((), status, framing=Framing.LENGTH)}) as server:
        provider = OpenAIChat(ProviderRow(name="up", type="openai", base_url=server.url), Settings())
        with pytest.raises(Truncated):
            await anext(provider.stream(REQUEST))
        await provider.aclose()


@pytest.mark.parametrize("seed", range(60))
async def test_however_chunks_are_cut_the_body_arrives_whole(seed: int) -> None:
    random = Random(seed)
    texts = [random.choice(("a", "\r\n", "5\r\n", "\r\n0\r\n\r\n", "안녕", "x" * 300)) for _ in range(40)]
    sent = chunked(random, b"".join(chunk({"content": text}) for text in texts) + chunk({}, "stop") + DONE)
    sizes = random.choice(((1, 2, 3), (50, 127, 128), (5, 400), (137,), (100_000,)))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"hello.")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        at = 0
        while at < len(sent):
            size = random.choice(sizes)
            writer.write(sent[at : at + size])
            at += size
            for _ in range(random.choice((1, 3))):
                await asyncio.sleep(0)
        await writer.drain()
        await reader.read()
        writer.close()

    client = Client()
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        provider = OpenAIChat(ProviderRow(name="up", type="openai", base_url=f"http://127.0.0.1:{port}"), Settings())
        meter = Meter("test", "model", "up")
        response = StreamResponse(
            WIRE,
            lambda: open_stream(lambda: provider.stream(REQUEST), model="m", meter=meter, patience=Patience()),
            ChunkEncoder(include_usage=False),
            limits=Limits(),
        )
        scope = {"type": "http", SHORT_WAY: client}
        async with asyncio.timeout(10):
            await response(scope, asyncio.Event().wait, client.send)  # type: ignore[arg-type]  # nobody asks it
        await provider.aclose()
    assert client.text == "".join(texts)
    assert client.events[-1] == "[DONE]"


@pytest.mark.parametrize(
    ("data", "body"),
    [
        (b"5\r\nhello\r\n", b"hello"),
        (b"5\r\nhello\r\n00001\r\n!\r\n", b"hello!"),
        (b"5\r\nhello\r\n0\r\n\r\n", b""),
        (b"5\r\nhello\r", b""),
        (b"5\r\nhello\r\n1", b""),
        (b"5\r\nhello\r\n1\r\n", b""),
        (b"5\r\nhell\r\n", b""),
        (b"4\r\nhello\r\n", b""),
        (b"5;a=b\r\nhello\r\n", b""),
        (b"+5\r\nhello\r\n", b""),
        (b"0x5\r\nhello\r\n", b""),
        (b"1_0\r\n0123456789abcdef\r\n", b""),
        (b"-1\r\n\r\n", b""),
        (b"\r\n\r\n", b""),
        (b"x\r\nhello\r\n", b""),
        (b"f" * 30 + b"\r\nhello\r\n", b""),
    ],
)
def test_only_chunks_that_are_whole_are_read_without_a_parser(data: bytes, body: bytes) -> None:
    assert whole_chunks(data) == body
