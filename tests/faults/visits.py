"""A client's stream on any wire, and what its upstream is told to do: the hands of `test_any_order`."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from typing import Any, cast

from tests.contract.openai_entry import stream_chunks
from tests.contract.scenario import Scenario
from tests.contract.wire_clients import Raw, clients
from tests.contract.wire_entry import Answer as Read
from tests.contract.wire_entry import WireEntry
from tests.running import Service
from tests.upstreams.byte_server import Act, Answer, ByteServer, Request, Step

SECONDS = 10.0
BEGUN = "Hel"
FAILURE = b'data: {"error":{"message":"The model broke.","type":"server_error","code":null}}\n\n'
OPENING, (FIRST, *MORE), ENDING = stream_chunks(Scenario())
ENDS: dict[str, list[Step]] = {"finish": [*ENDING], "fail": [FAILURE], "cut": [Act.DROP], "reset": [Act.RESET]}


class Said:
    """What one stream's upstream says: its beginning, then what it is told."""

    def __init__(self) -> None:
        self._told: list[Step] = []
        self._more = asyncio.Event()
        self._over = False

    def tell(self, *steps: Step, last: bool = False) -> None:
        """Say these next; nothing comes after the `last`."""
        self._told += steps
        self._over = last
        self._more.set()

    def __iter__(self) -> Iterator[Step]:
        yield from (*OPENING, FIRST)
        while True:
            yield self._more
            self._more.clear()
            # What is told while this is being said is said next, also if it is the last.
            told, over, self._told = self._told, self._over, []
            yield from told
            if over:
                return


class Upstream:
    """The fake behind the service: a stream for each question, found by the question's text."""

    def __init__(self) -> None:
        self.said: dict[str, Said] = {}
        self.asked: dict[str, Request] = {}
        self.server = ByteServer({"*": self._answer})

    def _answer(self, request: Request) -> Answer:
        found = re.search(rb"question-\d+", request.body)
        assert found is not None
        question = found[0].decode()
        self.asked[question] = request
        self.said[question] = Said()
        return Answer(cast(Any, self.said[question]))


class Visit:
    """One client that asked one question."""

    def __init__(self, service: Service, wire: WireEntry, question: str) -> None:
        self.service, self.wire, self.question = service, wire, question
        self.seen = b""
        self.begun = asyncio.Event()
        self.reading = asyncio.Event()
        self.reading.set()
        self._stack = AsyncExitStack()
        self._asking: asyncio.Task[Raw] | None = None

    @property
    def owned(self) -> bool:
        """Whether the stream belongs to the service, so that it goes on without its reader."""
        return self.wire.name == "replicate"

    @property
    def here(self) -> bool:
        """Whether the client reads, or would."""
        return self._asking is not None

    async def ask(self, url: str | None = None) -> None:
        """Ask, or read on at `url`, until the answer has begun or is there."""
        self.opened = await self._stack.enter_async_context(clients(self.service))
        self.opened.taken, self.opened.patience = self._take, 600
        self.begun.clear()
        asking = self.wire.ask(self.opened, "m", self.question) if url is None else self.opened.send("GET", url)
        self._asking = asyncio.ensure_future(asking)
        begun = asyncio.create_task(self.begun.wait())
        async with asyncio.timeout(SECONDS):
            await asyncio.wait((begun, self._asking), return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()

    async def _take(self, piece: bytes) -> None:
        self.seen += piece
        if BEGUN.encode() in self.seen:
            self.begun.set()
        await self.reading.wait()

    async def answer(self) -> tuple[int, Read]:
        """The whole answer, which has to come now: its status, and what a strict client reads."""
        assert self._asking is not None
        self.reading.set()
        async with asyncio.timeout(SECONDS):
            raw = await self._asking
        await self.leave()
        return raw.status, self.wire.read(raw)

    async def leave(self) -> None:
        """Hang up."""
        asking, self._asking = self._asking, None
        if asking is None:
            return
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking
        for socket in self.opened.sockets.values():
            socket.transport.abort()
        await self._stack.aclose()

    @property
    def stream_url(self) -> str:
        """Where a prediction is read again."""
        return self._found(r'"stream": ?"([^"]+)"')

    async def cancel(self, times: int = 1) -> bool:
        """Stop the stream by the wire's own verb, if it has one. A prediction is cancelled by another connection."""
        if self.owned:
            async with clients(self.service) as others:
                url = self._found(r'"cancel": ?"([^"]+)"')
                answers = await asyncio.gather(*(others.send("POST", url) for _ in range(times)))
            assert [answer.status for answer in answers] == [200] * times
            return True
        said = {"type": "cancel"}
        if self.wire.name == "openai realtime":
            # Without its id, only a response of the conversation is meant.
            said = {"type": "response.cancel", "response_id": self._found(r'"response_id": ?"([^"]+)"')}
        for socket in self.opened.sockets.values():
            await socket.send(json.dumps(said))
        return bool(self.opened.sockets)

    def _found(self, pattern: str) -> str:
        """What has been said of the stream in the answer so far."""
        found = re.search(pattern.encode(), self.seen)
        assert found is not None
        return found[1].decode()
