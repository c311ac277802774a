"""Messages of a gRPC call that are written past its task: each once, in order, one at a time, and never too many."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from opensearch.protobufs.schemas import common_pb2

from adapters import build
from gateway.catalog import Gateway
from gateway.config import Settings
from stores import open_store
from tests.opensearch.calls import asked, content
from tests.upstreams.byte_server import Act, Answer, ByteServer
from tests.upstreams.openai_streams import DONE, chunk
from wires.opensearch import StreamPool
from wires.opensearch.messages import MOST_WAITING, MessageWriter
from wires.opensearch_grpc import MachineLearning

TEXTS = [f"piece {number} 안녕 👋🏽" for number in range(30)]


class Context:
    """grpc's side of one call: `write` serializes at once, and ends when the client's side has taken the message."""

    def __init__(self, *, taking: bool = False) -> None:
        self.taking = taking
        self.sent: list[Any] = []
        self.by_a_task: list[bool] = []
        self.status: grpc.StatusCode | None = None
        self._pending: asyncio.Future[None] | None = None
        self._came = asyncio.Event()

    async def write(self, message: Any) -> None:
        assert self._pending is None, "one at a time"
        self.sent.append(common_pb2.PredictResponse.FromString(message.SerializeToString()))
        self.by_a_task.append(asyncio.current_task() is not None)
        self._came.set()
        loop = asyncio.get_running_loop()
        self._pending = loop.create_future()
        if self.taking:
            loop.call_soon(self._pending.set_result, None)
        try:
            await self._pending
        finally:
            self._pending = None

    async def take(self, failure: Exception | None = None) -> None:
        """Let the write that waits end, and what follows from it begin."""
        assert self._pending is not None
        if failure is None:
            self._pending.set_result(None)
        else:
            self._pending.set_exception(failure)
        await asyncio.sleep(0)

    async def until(self, text: str) -> None:
        async with asyncio.timeout(5):
            while text not in self.texts:
                self._came.clear()
                await self._came.wait()

    @property
    def texts(self) -> list[str]:
        return [content(message) for message in self.sent]

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()

    async def send_initial_metadata(self, metadata: Any) -> None:
        pass

    def set_trailing_metadata(self, metadata: Any) -> None:
        pass

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    async def abort(self, code: grpc.StatusCode, details: str, metadata: Any) -> None:
        self.status = code
        raise grpc.aio.AbortError


async def test_a_message_is_written_by_the_call_that_brings_it() -> None:
    context = Context()
    writer = MessageWriter(context.write)
    writer.put(["a\ud800"])
    assert context.texts == ["a?"]
    assert not writer.idle()
    await context.take()
    assert writer.idle()


async def test_the_others_wait_their_turn() -> None:
    context = Context()
    writer = MessageWriter(context.write)
    writer.put(["a", "b"])
    writer.put(["c"])
    writer.put([""], last=True)
    for number in range(1, 5):
        assert context.texts == ["a", "b", "c", ""][:number]
        await context.take()
    assert writer.idle()
    assert [message.inference_results[0].output[0].data_as_map.is_last for message in context.sent] == [
        *[False] * 3,
        True,
    ]


async def test_a_few_may_wait_and_each_that_is_taken_is_progress() -> None:
    context = Context()
    writer = MessageWriter(context.write)
    writer.put(TEXTS[: 1 + MOST_WAITING])
    assert not writer.ready()
    waiting = asyncio.create_task(writer.progress())
    await asyncio.sleep(0)
    assert not waiting.done()
    await context.take()
    await asyncio.wait_for(waiting, 5)
    assert writer.ready()
    assert context.texts == TEXTS[:2]


async def test_what_grpc_raises_is_told_and_nothing_more_is_written() -> None:
    context = Context()
    writer = MessageWriter(context.write)
    writer.put(["a", "b"])
    waiting = asyncio.create_task(writer.progress())
    await asyncio.sleep(0)
    await context.take(grpc.aio.InternalError("gone"))
    with pytest.raises(grpc.aio.InternalError):
        await waiting
    writer.put(["c"])
    assert context.texts == ["a"]
    assert not writer.ready()
    assert not writer.idle()


async def test_after_its_end_a_call_begins_no_message() -> None:
    context = Context()
    writer = MessageWriter(context.write)
    writer.put(["a", "b"])
    writer.close()
    await context.take()
    assert context.texts == ["a"]
    assert writer.idle()


async def answered(context: Context, folder: Path, *steps: Any) -> None:
    """A call of PredictModelStream to its end, for a model whose upstream writes `steps`."""
    async with ByteServer({"/v1/chat/completions": Answer(list(steps))}) as server:
        settings = Settings(
            providers=[{"name": "up", "type": "openai", "base_url": f"{server.url}/v1"}],
            models=[{"id": "m", "provider": "up", "upstream": "gpt"}],
        )
        store = open_store(f"sqlite:///{folder / 'polywire.db'}")
        gateway = Gateway(settings, build, store)
        try:
            async with asyncio.timeout(10):
                await MachineLearning(StreamPool(gateway)).PredictModelStream(asked("m", inputs="hi"), context)
        finally:
            await gateway.aclose()
            await store.aclose()


@pytest.mark.parametrize("size", [1, 100, 100_000])
async def test_however_the_bytes_are_cut_the_messages_are_the_same(tmp_path: Path, size: int) -> None:
    context = Context(taking=True)
    body = b"".join(chunk({"content": text}) for text in TEXTS) + chunk({}, "stop") + DONE
    await answered(
        context, tmp_path, *(step for at in range(0, len(body), size) for step in (body[at : at + size], 0.0))
    )
    assert context.texts == [*TEXTS, ""]
    if size == 100:
        assert not all(context.by_a_task)


@pytest.mark.parametrize("end", [DONE, Act.DROP])
async def test_the_end_waits_until_all_messages_are_taken(tmp_path: Path, end: Any) -> None:
    context = Context()
    pieces = [step for text in TEXTS[:4] for step in (chunk({"content": text}), 0.01)]
    call = asyncio.create_task(answered(context, tmp_path, *pieces, end))
    said = [*TEXTS[:4], *([""] if end == DONE else [])]
    for number, text in enumerate(said, 1):
        await context.until(text)
        # Long enough for the upstream's end to be here.
        assert not (await asyncio.wait([call], timeout=0.1))[0]
        assert context.texts == said[:number]
        await context.take()
    await asyncio.wait([call])
    assert context.texts == said
    assert context.status is (None if end == DONE else grpc.StatusCode.INTERNAL)
    assert isinstance(call.exception(), grpc.aio.AbortError | None)
