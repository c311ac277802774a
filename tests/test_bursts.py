"""Events of one upstream read leave in one send, and no event ever waits for one that has not come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from starlette.types import Message

from adapters.openai_chat import OpenAIChat
from gateway.bursts import Bursts
from gateway.config import Limits, ProviderRow, Settings
from gateway.errors import GatewayError, UpstreamError
from gateway.events import Delta, Finished, FinishReason, TextDelta
from gateway.patience import Patience
from gateway.request import ChatRequest, Role, text_message
from gateway.streams import EventStream, open_stream
from gateway.telemetry import Meter
from tests.upstreams.byte_server import Act, Answer, ByteServer
from tests.upstreams.openai_streams import DONE, chunk
from wires.base import StreamResponse
from wires.openai.chat import ChunkEncoder
from wires.openai.errors import WIRE

REQUEST = ChatRequest("m", (text_message(Role.USER, "Say hello."),))
END = Finished(FinishReason.STOP)
Burst = Iterable[Delta | Finished]


class Sink:
    """Takes a response's bodies; `came` is set at each."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.came = asyncio.Event()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            self.bodies.append(message["body"])
            self.came.set()

    async def until(self, text: bytes) -> None:
        async with asyncio.timeout(5):
            while not any(text in body for body in self.bodies):
                self.came.clear()
                await self.came.wait()


@asynccontextmanager
async def opened(*bursts: Burst, hang: bool = False) -> AsyncIterator[EventStream[Any]]:
    async def reads() -> AsyncGenerator[Burst, None]:
        for burst in bursts:
            yield burst
        if hang:
            await asyncio.Event().wait()

    meter = Meter("test", "model", "up")
    async with open_stream(lambda: Bursts(reads()), model="model", meter=meter, patience=Patience()) as events:
        yield events


async def respond(sink: Sink, *bursts: Burst, hang: bool = False) -> None:
    encoder = ChunkEncoder(include_usage=False)
    response = StreamResponse(WIRE, lambda: opened(*bursts, hang=hang), encoder, limits=Limits())
    await response({"type": "http"}, asyncio.Event().wait, sink.send)  # type: ignore[arg-type]  # nobody asks it


async def test_what_one_read_brought_leaves_in_one_send() -> None:
    sink = Sink()
    await respond(sink, [TextDelta("a"), TextDelta("b")], [TextDelta("c"), END])
    first, second, last = sink.bodies
    assert (first.count(b"data: "), b'"a"' in first, b'"b"' in first) == (3, True, True)
    assert (b'"c"' in second, second.endswith(b"data: [DONE]\n\n"), last) == (True, True, b"")


async def test_nothing_waits_for_an_event_that_says_nothing() -> None:
    sink = Sink()
    response = asyncio.create_task(respond(sink, [TextDelta("a"), TextDelta("")], hang=True))
    await sink.until(b'"a"')
    response.cancel()
    with pytest.raises(asyncio.CancelledError):
        await response


async def test_leaving_closes_a_response_that_is_sent_by_its_own_task() -> None:
    async with ByteServer({"/v1/chat/completions": Answer([chunk({"content": "a"}), Act.HANG])}) as server:
        provider = OpenAIChat(ProviderRow(name="up", type="openai", base_url=f"{server.url}/v1"), Settings())

        def stream() -> Any:
            meter = Meter("test", "model", "up")
            return open_stream(lambda: provider.stream(REQUEST), model="m", meter=meter, patience=Patience())

        sink = Sink()
        response = StreamResponse(WIRE, stream, ChunkEncoder(include_usage=False), limits=Limits())
        task = asyncio.create_task(response({"type": "http"}, asyncio.Event().wait, sink.send))  # type: ignore[arg-type]  # nobody asks it
        await sink.until(b'"a"')
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(5):
            await server.requests[0].gone.wait()
        await provider.aclose()


async def test_what_came_before_a_failure_is_sent_before_it() -> None:
    def broken() -> Iterator[Delta]:
        yield TextDelta("a")
        yield TextDelta("b")
        raise UpstreamError("It broke.", provider="up")

    sink = Sink()
    await respond(sink, broken())
    whole = b"".join(sink.bodies)
    assert whole.index(b'"a"') < whole.index(b'"b"') < whole.index(b"It broke.")


async def test_events_after_the_end_are_dropped() -> None:
    async with opened([TextDelta("a"), END, TextDelta("b")]) as events:
        assert [event async for event in events][1:] == [TextDelta("a"), END]


async def test_a_read_of_a_real_stream_is_one_burst() -> None:
    body = b"".join(chunk({"content": text}) for text in "abc") + chunk({}, "stop") + DONE
    async with ByteServer({"/v1/chat/completions": Answer([body])}) as server:
        provider = OpenAIChat(ProviderRow(name="up", type="openai", base_url=f"{server.url}/v1"), Settings())
        events = provider.stream(REQUEST)
        assert isinstance(events, Bursts)
        async with aclosing(events):
            assert await anext(events) == TextDelta("a")
            assert list(events.rest()) == [TextDelta("b"), TextDelta("c"), END]
        await provider.aclose()


async def test_a_failure_inside_a_burst_closes_what_it_came_from() -> None:
    closed = []

    async def reads() -> AsyncGenerator[Iterable[int], None]:
        try:
            yield [1]
            yield (1 // number for number in (1, 0))
        finally:
            closed.append(True)

    bursts = Bursts(reads())
    with pytest.raises(ZeroDivisionError):
        async for _ in bursts:
            pass
    assert closed == [True]


async def test_a_failure_among_what_came_together_is_the_next_one_and_closes_as_well() -> None:
    raised: list[Exception] = []

    async def reads() -> AsyncGenerator[Iterable[int], None]:
        try:
            yield (1 // number for number in (1, 1, 0))
        except ZeroDivisionError as error:
            raised.append(error)
            raise

    bursts = Bursts(reads())
    assert await anext(bursts) == 1
    assert list(bursts.rest()) == [1]
    assert not raised
    with pytest.raises(ZeroDivisionError):
        await anext(bursts)
    assert len(raised) == 1


async def test_a_refused_first_event_is_still_a_refusal() -> None:
    def refused() -> Iterator[Delta]:
        yield from ()
        raise UpstreamError("No.", provider="up")

    with pytest.raises(GatewayError):
        async with opened(refused()):
            pytest.fail("the stream was opened")
