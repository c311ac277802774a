"""A raw HTTP/1.1 server on loopback that plays answers byte by byte and notices when its peer goes away.

    async with ByteServer({"/v1/chat/completions": Answer(frames)}) as server:
        ... server.url, server.requests, await server.requests[0].gone.wait() ...

A route is a path or a pattern (`/predictions/*`; the first that fits) and leads to one answer, to a list of answers for
successive requests (the last one repeats) or to a function of the request. Everything runs in the test's own event
loop, so a write of one byte is a read of one byte.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Self, cast

from tests.upstreams.answers import Act, Answer, Framing, Route, Step, json_answer
from tests.upstreams.http_request import Request, parse_request

__all__ = ["Act", "Answer", "ByteServer", "Framing", "Request", "Route", "Step", "json_answer", "serving"]

NO_LINGER = struct.pack("ii", 1, 0)


class ByteServer:
    """The server; an asynchronous context manager."""

    def __init__(self, routes: Mapping[str, Route], *, tls: ssl.SSLContext | None = None) -> None:
        self.routes = dict(routes)
        self.requests: list[Request] = []
        self.connections: set[_Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.accepted = self.most_connections = 0
        self.port, self.url = 0, ""
        self._turns: dict[str, int] = {}
        self._tls = tls
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", 0, ssl=self._tls, backlog=512)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for connection in list(self.connections):
            await connection.abort()
        await asyncio.gather(*self.tasks)
        await self._server.wait_closed()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something about requests and connections holds. Raises TimeoutError after 5 s."""
        async with asyncio.timeout(5):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    async def without_connections(self) -> None:
        """Wait until no connection is left. Raises TimeoutError after 5 s."""
        await self.until(lambda: not self.connections)

    def received(self, method: str, part: str) -> list[Request]:
        """The requests so far with this method and `part` in their path."""
        return [request for request in self.requests if request.method == method and part in request.path]

    async def wait_for(self, method: str, part: str) -> Request:
        """The first such request, now or within 5 s."""
        await self.until(lambda: bool(self.received(method, part)))
        return self.received(method, part)[0]

    def answer(self, request: Request) -> Answer:
        """The answer to `request`, which is counted."""
        self.requests.append(request)
        self._changed.set()
        path = self._route_of(request.path.partition("?")[0])
        route = self.routes.get(path)
        if route is None:
            return json_answer({"error": {"message": "no such path"}}, 404)
        if callable(route):
            return route(request)
        if isinstance(route, Answer):
            return route
        turn = self._turns.get(path, 0)
        self._turns[path] = turn + 1
        return route[min(turn, len(route) - 1)]

    def _route_of(self, path: str) -> str:
        if path in self.routes:
            return path
        return next((pattern for pattern in self.routes if fnmatchcase(path, pattern)), path)

    def asked(self, route: str) -> list[Request]:
        """The requests so far that `route` leads to."""
        return [request for request in self.requests if self._route_of(request.path.partition("?")[0]) == route]

    def opened(self, connection: _Connection) -> None:
        """A connection was accepted."""
        self.accepted += 1
        self.connections.add(connection)
        self.most_connections = max(self.most_connections, len(self.connections))
        self._changed.set()

    def closed(self, connection: _Connection) -> None:
        """A connection is gone."""
        self.connections.discard(connection)
        self._changed.set()


def serving(*answers: Answer, tls: ssl.SSLContext | None = None) -> ByteServer:
    """A server that gives `answers` in order whatever is asked, the last one again and again."""
    return ByteServer({"*": answers}, tls=tls)


class _Connection(asyncio.Protocol):
    def __init__(self, server: ByteServer) -> None:
        self._server = server
        self._received = bytearray()
        self._writable = asyncio.Event()
        self._writable.set()
        self._lost = asyncio.Event()
        self._request: Request | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # No isinstance: uvloop's transports are of another family.
        self._transport = cast(asyncio.Transport, transport)
        self._server.opened(self)

    def data_received(self, data: bytes) -> None:
        self._received += data
        request = parse_request(bytes(self._received))
        if request is not None:
            self._received.clear()
            self._request = request
            task = asyncio.get_running_loop().create_task(self._answer(request))
            self._server.tasks.add(task)
            task.add_done_callback(self._server.tasks.discard)

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

    def _leave(self) -> None:
        request, self._request = self._request, None
        if request is not None:
            request.gone_at = asyncio.get_running_loop().time()
            request.gone.set()
            request.ended.set()

    async def _answer(self, request: Request) -> None:
        answer = self._server.answer(request)
        whole = await self._play(answer, request)
        if whole:
            self._request = None
            request.answered.set()
            request.ended.set()
        if not whole or answer.framing is Framing.CLOSE:
            self._transport.close()

    async def _play(self, answer: Answer, request: Request) -> bool:
        """Write the answer; False when it was left unfinished."""
        if answer.after is not None:
            await self._wait(answer.after)
        if answer.before_head is not None:
            return await self._act(answer.before_head)
        await self._write(_head(answer), answer.cut)
        left = answer.truncated_at
        for step in answer.steps:
            if isinstance(step, bytes):
                piece = step if left is None else step[:left]
                if piece:
                    await self._write(_framed(piece, answer.framing), answer.cut)
                    request.written.set()
                if left is not None and (left := left - len(piece)) == 0:
                    return False
            elif isinstance(step, Act):
                return await self._act(step)
            else:
                await self._wait(step)
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
            # Let the reader take this piece before the next one is written.
            await asyncio.sleep(0)

    async def _wait(self, step: float | asyncio.Event) -> None:
        """Wait so many seconds or for an event, but not longer than the peer stays."""
        waits = [asyncio.ensure_future(self._lost.wait())]
        waits += [asyncio.ensure_future(step.wait())] if isinstance(step, asyncio.Event) else []
        seconds = None if isinstance(step, asyncio.Event) else float(step)
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)

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
