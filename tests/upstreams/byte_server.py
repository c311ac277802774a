"""A raw HTTP/1.1 server on loopback that plays answers byte by byte and notices when its peer goes away.

    async with ByteServer({"/v1/chat/completions": Answer(frames)}) as server:
        ... server.url, server.requests, await server.requests[0].gone.wait() ...

A route leads to one answer, to a list of answers for successive requests (the last one repeats) or to a function of
the request. Everything runs in the test's own event loop, so a write of one byte is a read of one byte.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Self

from tests.upstreams.http_request import Request, parse_request

__all__ = ["Act", "Answer", "ByteServer", "Framing", "Request", "Route", "Step", "json_answer"]

NO_LINGER = struct.pack("ii", 1, 0)


class Act(Enum):
    """A step of an answer that is not bytes."""

    HANG = "say nothing until the peer goes away"
    DROP = "close the connection in the middle"
    RESET = "reset the connection"


Step = bytes | float | Act


class Framing(Enum):
    """How the body's end is told."""

    CHUNKED = "chunked"
    LENGTH = "length"
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: `steps` are bytes to write, seconds to pause and acts. `cut` splits every write into that many
    bytes; `truncated_at` drops the connection after so many bytes of the body (LENGTH still declares them all);
    `before_head` is done in place of everything."""

    steps: Sequence[Step] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "text/event-stream"})
    framing: Framing = Framing.CHUNKED
    cut: int | None = None
    truncated_at: int | None = None
    before_head: Act | None = None

    @property
    def body(self) -> bytes:
        """All bytes of the body, without framing."""
        return b"".join(step for step in self.steps if isinstance(step, bytes))


def json_answer(body: bytes, status: int = 200, **headers: str) -> Answer:
    """A whole JSON answer with its length."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer((body,), status, {"content-type": "application/json", **given}, Framing.LENGTH)


Route = Answer | Sequence[Answer] | Callable[[Request], Answer]


class ByteServer:
    """The server; an asynchronous context manager."""

    def __init__(self, routes: Mapping[str, Route], *, tls: ssl.SSLContext | None = None) -> None:
        self.routes = dict(routes)
        self.requests: list[Request] = []
        self.asked = asyncio.Event()
        self.connections: set[_Connection] = set()
        self.accepted = 0
        self.url = ""
        self._turns: dict[str, int] = {}
        self._tls = tls
        self._quiet = asyncio.Event()
        self._quiet.set()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", 0, ssl=self._tls, backlog=512)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for connection in list(self.connections):
            await connection.abort()
        await self._server.wait_closed()

    async def without_connections(self) -> None:
        """Wait until no connection is left."""
        await self._quiet.wait()

    def answer(self, request: Request) -> Answer:
        """The answer to `request`, which is counted."""
        self.requests.append(request)
        self.asked.set()
        path = request.path.partition("?")[0]
        route = self.routes.get(path)
        if route is None:
            return json_answer(b'{"error":{"message":"no such path"}}', 404)
        if callable(route):
            return route(request)
        if isinstance(route, Answer):
            return route
        turn = self._turns.get(path, 0)
        self._turns[path] = turn + 1
        return route[min(turn, len(route) - 1)]

    def longest_answer(self) -> tuple[str, Answer]:
        """The path and the answer with the most bytes, of the routes that are no functions."""
        last = {
            path: route if isinstance(route, Answer) else route[-1]
            for path, route in self.routes.items()
            if not callable(route)
        }
        return max(last.items(), key=lambda item: len(item[1].body))

    def opened(self, connection: _Connection) -> None:
        """A connection was accepted."""
        self.accepted += 1
        self.connections.add(connection)
        self._quiet.clear()

    def closed(self, connection: _Connection) -> None:
        """A connection is gone."""
        self.connections.discard(connection)
        if not self.connections:
            self._quiet.set()


class _Connection(asyncio.Protocol):
    def __init__(self, server: ByteServer) -> None:
        self._server = server
        self._received = bytearray()
        self._writable = asyncio.Event()
        self._writable.set()
        self._lost = asyncio.Event()
        self._request: Request | None = None
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._server.opened(self)

    def data_received(self, data: bytes) -> None:
        self._received += data
        request = parse_request(bytes(self._received))
        if request is not None:
            self._received.clear()
            self._request = request
            self._task = asyncio.get_running_loop().create_task(self._answer(request))

    def eof_received(self) -> bool:
        self._leave()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        self._lost.set()
        self._writable.set()
        self._server.closed(self)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    async def abort(self) -> None:
        """Close at once, whatever is being said."""
        self._transport.abort()
        await self._lost.wait()
        if self._task is not None:
            await self._task

    def _leave(self) -> None:
        request, self._request = self._request, None
        if request is not None:
            request.gone_at = asyncio.get_running_loop().time()
            request.gone.set()

    async def _answer(self, request: Request) -> None:
        answer = self._server.answer(request)
        whole = await self._play(answer)
        if whole:
            self._request = None
            request.answered.set()
        if not whole or answer.framing is Framing.CLOSE:
            self._transport.close()

    async def _play(self, answer: Answer) -> bool:
        """Write the answer; False when it was left unfinished."""
        if answer.before_head is not None:
            return await self._act(answer.before_head)
        await self._write(_head(answer), answer.cut)
        left = answer.truncated_at
        for step in answer.steps:
            match step:
                case bytes():
                    piece = step if left is None else step[:left]
                    if piece:
                        await self._write(_framed(piece, answer.framing), answer.cut)
                    if left is not None and (left := left - len(piece)) == 0:
                        return False
                case Act():
                    return await self._act(step)
                case _:
                    await self._pause(float(step))
            if self._lost.is_set():
                return False
        if answer.framing is Framing.CHUNKED:
            await self._write(b"0\r\n\r\n", answer.cut)
        return True

    async def _act(self, act: Act) -> bool:
        if act is Act.HANG:
            await self._lost.wait()
        elif act is Act.RESET:
            self._reset()
        return False

    async def _write(self, data: bytes, cut: int | None) -> None:
        for start in range(0, len(data), cut or len(data)):
            if self._lost.is_set():
                return
            self._transport.write(data[start : start + (cut or len(data))])
            await self._writable.wait()
            if cut:
                # Let the reader take this piece before the next one is written.
                await asyncio.sleep(0)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._lost.wait()
        except TimeoutError:
            return

    def _reset(self) -> None:
        raw = self._transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
        self._transport.abort()


def _head(answer: Answer) -> bytes:
    lines = [f"HTTP/1.1 {answer.status} Said", *(f"{name}: {value}" for name, value in answer.headers.items())]
    match answer.framing:
        case Framing.CHUNKED:
            lines.append("transfer-encoding: chunked")
        case Framing.LENGTH:
            lines.append(f"content-length: {len(answer.body)}")
        case Framing.CLOSE:
            lines.append("connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _framed(data: bytes, framing: Framing) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data) if framing is Framing.CHUNKED else data
