"""Messages on a WebSocket are the bytes that the `websockets` package would write."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Message
from websockets.frames import Frame, Opcode

from wires.outbox import Outbox
from wires.quick_socket import BINARY, TEXT, head


@pytest.mark.parametrize("size", [0, 1, 125, 126, 960, 65_535, 65_536, 100_000])
@pytest.mark.parametrize(("first", "opcode"), [(TEXT, Opcode.TEXT), (BINARY, Opcode.BINARY)])
def test_a_message_is_one_whole_frame(size: int, first: int, opcode: Opcode) -> None:
    data = b"x" * size
    assert head(first, size) + data == Frame(opcode, data).serialize(mask=False)


async def test_nothing_overtakes_a_message_that_waits_for_its_reader() -> None:
    sent: list[str] = []
    reads = asyncio.Event()

    async def send(message: Message) -> None:
        await reads.wait()
        sent.append(message["text"])

    class Way:
        takes = False

        def ready(self) -> bool:
            return self.takes

        def put(self, first: int, data: bytes) -> None:
            sent.append(data.decode())

    way = Way()
    outbox = Outbox(send, 60, way)
    slow = [asyncio.create_task(outbox.json({"n": number})) for number in range(2)]
    await asyncio.sleep(0)
    way.takes = True
    later = asyncio.create_task(outbox.json({"n": 2}))
    await asyncio.sleep(0)
    reads.set()
    await asyncio.gather(*slow, later)
    await outbox.json({"n": 3})
    outbox.gone()
    assert sent == [f'{{"n":{number}}}' for number in range(4)]
