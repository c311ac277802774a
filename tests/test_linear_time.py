"""Long answers and long inputs cost time in proportion to their length: ten times as long, not a hundred times."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.types import Message

from adapters.chat_completions import ChatCompletionDecoder, chat_body
from gateway.bursts import Bursts
from gateway.config import ProviderRow
from gateway.events import Delta, Finished, FinishReason, StreamEvent, TextDelta
from gateway.patience import Patience
from gateway.sse import SseDecoder
from gateway.streams import open_stream
from gateway.telemetry import Meter
from wires.chat_body import ChatBody, parse
from wires.openai.chat import ChunkEncoder
from wires.outbox import Outbox
from wires.websocket.turn import Turn

ROW = ProviderRow(name="up", type="openai")
CHUNK = b'data: {"choices":[{"index":0,"delta":{"content":"token "},"finish_reason":null}]}\n\n'
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
READ = 64 * 1024
MOST_TIMES = 20
"""Between the tenfold of a linear cost and the hundredfold of a quadratic one."""


async def test_an_answer_of_100_000_tokens_costs_ten_times_one_of_10_000() -> None:
    assert await _least(lambda: _relay(100_000)) < MOST_TIMES * await _least(lambda: _relay(10_000))


async def test_an_answer_that_comes_byte_by_byte_costs_linear_time() -> None:
    assert await _least(lambda: _decode_bytes(20_000)) < MOST_TIMES * await _least(lambda: _decode_bytes(2_000))


async def test_an_input_of_400_000_characters_costs_ten_times_one_of_40_000() -> None:
    assert await _least(lambda: _ask(400_000)) < MOST_TIMES * await _least(lambda: _ask(40_000))


async def test_a_turn_on_a_socket_of_100_000_tokens_costs_ten_times_one_of_10_000() -> None:
    assert await _least(lambda: _turn(100_000)) < MOST_TIMES * await _least(lambda: _turn(10_000))


async def _turn(tokens: int) -> None:
    async def events() -> AsyncGenerator[StreamEvent, None]:
        for _ in range(tokens):
            yield TextDelta("token ")
        yield Finished(FinishReason.STOP)

    async def send(message: Message) -> None:
        pass

    turn = Turn("turn", Outbox(send, 60), None)
    async with aclosing(events()) as stream:
        await turn.play(stream)
    assert (turn.ended, len(turn.text)) == (True, 6 * tokens)


async def _relay(tokens: int) -> None:
    """The hot path of a text token without its sockets."""
    body = CHUNK * tokens + END
    encoder, sent = ChunkEncoder(include_usage=False), 0
    meter = Meter("test", "model", "up")
    async with open_stream(lambda: Bursts(_reads(body)), model="model", meter=meter, patience=Patience()) as events:
        async for event in events:
            sent += sum(1 for _ in encoder.encode(event))
    assert sent == tokens + 3


async def _reads(body: bytes) -> AsyncGenerator[Iterable[Delta | Finished], None]:
    lines, decoder = SseDecoder(), ChatCompletionDecoder(ROW)
    for start in range(0, len(body), READ):
        found = lines.feed(body[start : start + READ])
        yield [delta for event in found for delta in decoder.feed(event.data)]
    yield [decoder.finish()]


async def _decode_bytes(size: int) -> None:
    """One long event in single bytes."""
    decoder = SseDecoder()
    for byte in b"data: " + b"x" * size:
        decoder.feed(bytes((byte,)))
    (event,) = decoder.feed(b"\n\n")
    assert len(event.data) == size


async def _ask(characters: int) -> None:
    """A request from the client's bytes to the upstream's."""
    content = "word " * (characters // 5)
    given = msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": content}]})
    request = parse(ChatBody.model_validate(msgspec.json.decode(given)))
    assert len(msgspec.json.encode(chat_body(request))) > characters


async def _least(work: Callable[[], Coroutine[Any, Any, None]]) -> float:
    """Seconds of CPU, the least of three runs."""
    spent = []
    for _ in range(3):
        began = time.process_time()
        await work()
        spent.append(time.process_time() - began)
    return max(min(spent), 1e-5)
