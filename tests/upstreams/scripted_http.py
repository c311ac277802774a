"""A loopback HTTP/1.1 server that writes exactly the bytes it is told to and records what its peer does.

A script is a list of steps per request: bytes (written as one HTTP chunk), an `asyncio.Event` (waited for), `CUT`
(the connection is closed here). Without `CUT` the body is ended as HTTP wants it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal, cast

CUT = "cut"
Step = bytes | asyncio.Event | str
Framing = Literal["chunked", "length", "close"]


@dataclass
class Answer:
    """What one request is answered with.

    Nothing is written, not even the head, before `after` is set; `status` 0 writes no head at all.
    """

    steps: Iterable[Step] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    framing: Framing = "chunked"
    after: asyncio.Event | None = None


@dataclass
class Received:
    """One request as it came in. `closed` is set the moment the peer closes its connection."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    closed: asyncio.Event = field(default_factory=asyncio.Event)


class ScriptedServer:
    """What `serving` hands out: where it listens, what it received, who is connected."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.requests: list[Received] = []
        self.connections = 0
        self.open = 0
        self.port = 0
        self.scheme = "http"
        self._changed = asyncio.Event()

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something about requests and connections holds. Raises TimeoutError after 5 s."""
        async with asyncio.timeout(5):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    def changed(self, connections: int = 0) -> None:
        """A request came in, or connections opened or closed."""
        self.open += connections
        self._changed.set()

    def next_answer(self, request: Received) -> Answer:
        self.requests.append(request)
        self.changed()
        return self._answers[0] if len(self._answers) == 1 else self._answers.pop(0)


class _Connection(asyncio.Protocol):
    def __init__(self, server: ScriptedServer) -> None:
        self._server = server
        self._bytes = b""
        self._request: Received | None = None
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._server.connections += 1
        self._server.changed(1)

    def data_received(self, data: bytes) -> None:
        self._bytes += data
        if (request := self._parse()) is not None:
            self._request = request
            assert self._transport is not None
            self._task = asyncio.ensure_future(self._answer(self._transport, self._server.next_answer(request)))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._server.changed(-1)
        if self._request is not None:
            self._request.closed.set()
        if self._task is not None:
            self._task.cancel()

    def _parse(self) -> Received | None:
        head, found, rest = self._bytes.partition(b"\r\n\r\n")
        if not found:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", 0))
        if len(rest) < length:
            return None
        self._bytes = rest[length:]
        method, target, _ = first.split(" ")
        return Received(method, target, headers, rest[:length])

    async def stop(self) -> None:
        """Abort the connection, if it was ever made, and wait for what answers it."""
        if self._transport is not None:
            self._transport.abort()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _answer(self, transport: asyncio.Transport, answer: Answer) -> None:
        body = b"".join(step for step in answer.steps if isinstance(step, bytes)) if answer.framing == "length" else b""
        if answer.after is not None:
            await answer.after.wait()
        if answer.status:
            transport.write(_head(answer, len(body)))
        for step in answer.steps:
            if isinstance(step, asyncio.Event):
                await step.wait()
            elif isinstance(step, bytes):
                transport.write(b"%x\r\n%s\r\n" % (len(step), step) if answer.framing == "chunked" else step)
                await self._writable.wait()
            else:
                transport.close()
                return
        if answer.framing == "chunked":
            transport.write(b"0\r\n\r\n")
        elif answer.framing == "close":
            transport.close()


def _head(answer: Answer, length: int) -> bytes:
    lines = [f"HTTP/1.1 {answer.status} X", *(f"{name}: {value}" for name, value in answer.headers.items())]
    if answer.framing == "chunked":
        lines.append("Transfer-Encoding: chunked")
    elif answer.framing == "length":
        lines.append(f"Content-Length: {length}")
    else:
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


@asynccontextmanager
async def serving(*answers: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedServer]:
    """A server on a free loopback port that gives `answers` in order, the last one again and again."""
    server = ScriptedServer(*answers)
    server.scheme = "https" if tls else "http"
    loop = asyncio.get_running_loop()
    connections: list[_Connection] = []

    def connect() -> _Connection:
        connections.append(_Connection(server))
        return connections[-1]

    listener = await loop.create_server(connect, "127.0.0.1", 0, backlog=1024, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for connection in connections:
            await connection.stop()


def one_byte_each(data: bytes) -> list[bytes]:
    """`data` as the awkwardest network writes it."""
    return [data[position : position + 1] for position in range(len(data))]
