"""A loopback HTTP/1.1 server that writes exactly the bytes it is told to, and records its requests and its peer's end.

Each request is answered by `answer(request)`. Pieces are written one by one, so the client reads them cut as they are;
an `asyncio.Event` among them is waited for.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

Piece = bytes | asyncio.Event
Framing = Literal["length", "chunked", "close"]
Ending = Literal["whole", "cut", "reset", "hold"]


@dataclass
class Answer:
    """`framing` says how the body's end is told; `ending` what happens after the last piece.

    `cut` closes without the end that the framing wants, `reset` aborts the connection, `hold` stays silent. With
    framing `close` a cut looks like a whole body. Nothing is written before `after` is set; status 0 has no head.
    """

    pieces: Iterable[Piece] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    framing: Framing = "chunked"
    ending: Ending = "whole"
    after: asyncio.Event | None = None


def json_answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """A whole JSON body."""
    head = {"content-type": "application/json", **(headers or {})}
    return Answer([json.dumps(value).encode()], status, head, "length")


def one_by_one(data: bytes) -> list[Piece]:
    """`data` in pieces of one byte."""
    return [data[index : index + 1] for index in range(len(data))]


@dataclass
class Request:
    """One request. `written` is set with the first piece of its answer, `closed` when its peer has gone."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    written: asyncio.Event = field(default_factory=asyncio.Event)
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    closed_at: float = 0.0

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class FakeServer:
    """What the server saw. `quiet` is set while no connection is open."""

    def __init__(self, answer: Callable[[Request], Answer]) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        self.open = 0
        self.quiet = asyncio.Event()
        self.port = 0
        self.tasks: set[asyncio.Task[None]] = set()
        self._waiting: list[tuple[Callable[[Request], bool], asyncio.Future[Request]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def received(self, method: str, part: str) -> list[Request]:
        """The requests so far with this method and `part` in their path."""
        return [request for request in self.requests if request.method == method and part in request.path]

    async def wait_for(self, method: str, part: str) -> Request:
        """The first such request, now or within two seconds."""
        for request in self.received(method, part):
            return request
        future: asyncio.Future[Request] = asyncio.get_running_loop().create_future()
        self._waiting.append((lambda request: request.method == method and part in request.path, future))
        async with asyncio.timeout(2):
            return await future

    def record(self, request: Request) -> Answer:
        self.requests.append(request)
        for matches, future in self._waiting:
            if matches(request) and not future.done():
                future.set_result(request)
        return self.answer(request)


class _Connection(asyncio.Protocol):
    def __init__(self, server: FakeServer, connections: set[_Connection]) -> None:
        self._server = server
        self._connections = connections
        self._bytes = b""
        self._request: Request | None = None
        self.task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._connections.add(self)
        self._server.open += 1
        self._server.quiet.clear()

    def data_received(self, data: bytes) -> None:
        self._bytes += data
        if (request := self._parse()) is not None:
            self._request = request
            self.task = asyncio.create_task(self._write(request, self._server.record(request)))
            self._server.tasks.add(self.task)
            self.task.add_done_callback(self._server.tasks.discard)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.discard(self)
        self._server.open -= 1
        if not self._server.open:
            self._server.quiet.set()
        self._writable.set()
        if self._request is not None:
            self._request.closed_at = asyncio.get_running_loop().time()
            self._request.closed.set()
        if self.task is not None:
            self.task.cancel()

    def _parse(self) -> Request | None:
        head, found, rest = self._bytes.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", 0))
        if not found or len(rest) < length:
            return None
        self._bytes = rest[length:]
        method, path, _ = first.split(" ")
        return Request(method, path, headers, rest[:length])

    async def _write(self, request: Request, answer: Answer) -> None:
        pieces = list(answer.pieces)
        if answer.after is not None:
            await answer.after.wait()
        size = sum(len(piece) for piece in pieces if isinstance(piece, bytes))
        if answer.status:
            self.transport.write(_head(answer, size + (answer.ending != "whole")))
        for piece in pieces:
            if isinstance(piece, asyncio.Event):
                await piece.wait()
                continue
            if not piece:  # an empty chunk would be the body's end
                continue
            self.transport.write(b"%x\r\n%s\r\n" % (len(piece), piece) if answer.framing == "chunked" else piece)
            request.written.set()
            await self._writable.wait()
            await asyncio.sleep(0)
        self._end(answer)

    def _end(self, answer: Answer) -> None:
        if answer.ending == "reset":
            self.transport.abort()
        elif answer.ending == "cut" or (answer.ending == "whole" and answer.framing == "close"):
            self.transport.close()
        elif answer.ending == "whole" and answer.framing == "chunked":
            self.transport.write(b"0\r\n\r\n")


def _head(answer: Answer, length: int) -> bytes:
    framing = {"length": f"content-length: {length}", "chunked": "transfer-encoding: chunked"}
    lines = [f"HTTP/1.1 {answer.status} Fake", *(f"{name}: {value}" for name, value in answer.headers.items())]
    return "\r\n".join([*lines, framing.get(answer.framing, "connection: close"), "", ""]).encode()


@asynccontextmanager
async def fake_server(answer: Callable[[Request], Answer]) -> AsyncIterator[FakeServer]:
    """A server on a free loopback port."""
    server, connections = FakeServer(answer), set[_Connection]()
    listening = await asyncio.get_running_loop().create_server(lambda: _Connection(server, connections), "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for connection in tuple(connections):
            connection.transport.abort()
        for task in server.tasks:
            task.cancel()
        await asyncio.gather(*server.tasks, return_exceptions=True)
        await listening.wait_closed()
