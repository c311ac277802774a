"""Clients in a process of their own, so that no test's loop is measured.

`python -m tests.faults.crowd KIND PORT COUNT`; whatever else a kind needs is one line of JSON on its input. It prints
`ready` once everybody is there, and when a line comes, what they saw as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, cast

import uvloop

from tests.faults.bytes_said import PING, asks, handshake, head, post

AT_ONCE = 100
BEAT_SECONDS = 0.5
NEVER = b"\r\n\r\n\r\n"
GET_READY = b"GET /readyz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
SERVER_PING = b"\x89\x04"
READY_SECONDS = 0.03
POLITENESS = 10
"""For crowds that take no times: what is measured beside them is the service, not who gets its processor."""


class Client(asyncio.Protocol):
    """One connection: says `opening`, and has `begun` when `until` came back."""

    def __init__(self, opening: bytes, until: bytes = b"") -> None:
        self._opening, self._until = opening, until
        self._seen = bytearray()
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.more = asyncio.Event()
        self.lost = self.paused = False
        self.gaps: list[float] = []
        self._last = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self._opening:
            self.transport.write(self._opening)
        if not self._until:
            self.begun.set_result(None)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        if self.begun.done():
            self.more.set()
            self.gaps.append(now - self._last)
            if data.startswith(SERVER_PING):
                self.transport.write(b"\x8a\x84" + bytes(4) + data[2:6])
        else:
            self._seen += data
            if self._until in self._seen:
                self.begun.set_result(None)
        self._last = now

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self.more.set()
        if not self.begun.done():
            self.begun.set_result(None)

    @property
    def answer(self) -> bytes:
        return bytes(self._seen)


class Crowd:
    """Those who came; `leave` is set when they are to go."""

    def __init__(self, port: int, count: int) -> None:
        self.port, self.count = port, count
        self.clients: list[Client] = []
        self.leave = asyncio.Event()

    async def come(self, opening: bytes, until: bytes = b"") -> None:
        """Open all connections, some at a time, and wait until each has begun."""
        room = asyncio.Semaphore(AT_ONCE)

        async def one() -> None:
            async with room:
                client = await self.open(opening, until)
                self.clients.append(client)

        await asyncio.gather(*(one() for _ in range(self.count)))

    async def open(self, opening: bytes, until: bytes = b"") -> Client:
        """One connection that has begun."""
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(lambda: Client(opening, until), "127.0.0.1", self.port)
        await client.begun
        return client

    async def until_told(self, beat: Callable[[Client], None] | None = None, seconds: float = BEAT_SECONDS) -> None:
        """Stay until told to leave; meanwhile `beat` for each, again and again."""
        print("ready", flush=True)  # noqa: T201 - a program's output
        while not self.leave.is_set():
            try:
                async with asyncio.timeout(seconds if beat else None):
                    await self.leave.wait()
            except TimeoutError:
                for client in self.clients:
                    if beat and not client.lost and not client.paused:
                        beat(client)


async def streams(crowd: Crowd, asked: Any) -> dict[str, Any]:
    """Streams that are read and then given up all at once."""
    await crowd.come(post("/v1/chat/completions", json.dumps(asked).encode()), b"Hel")
    await crowd.until_told()
    left = time.monotonic()
    for client in crowd.clients:
        client.transport.abort()
    gaps = sorted(gap for client in crowd.clients for gap in client.gaps)
    p99 = gaps[int(len(gaps) * 0.99)] if gaps else 0.0
    return {
        "left_at": left,
        "tokens": len(gaps),
        "p99": p99,
        "longest": max(gaps, default=0.0),
        "lost": sum(client.lost for client in crowd.clients),
    }


async def sockets(crowd: Crowd, _: Any) -> dict[str, Any]:
    """WebSockets that say nothing."""
    await crowd.come(handshake("/ws"), b"\r\n\r\n")
    await crowd.until_told()
    return seen(crowd)


async def heads(crowd: Crowd, _: Any) -> dict[str, Any]:
    """Slowloris: a head that comes letter by letter."""
    await crowd.come(b"POST /generate HTTP/1.1\r\nhost: 127.0.0.1\r\nx-a: ")
    await crowd.until_told(lambda client: client.transport.write(b"a"))
    return seen(crowd)


async def bodies(crowd: Crowd, _: Any) -> dict[str, Any]:
    """Bodies of which no more comes."""
    await crowd.come(head("/v1/chat/completions", 1000) + b'{"model"')
    await crowd.until_told()
    return seen(crowd)


async def pings(crowd: Crowd, _: Any) -> dict[str, Any]:
    """WebSockets that send pings as fast as they are taken."""
    await crowd.come(handshake("/ws"), b"\r\n\r\n")
    await crowd.until_told(lambda client: client.transport.write(PING * 500), 0.01)
    return seen(crowd)


async def slow(crowd: Crowd, asked: Any) -> dict[str, Any]:
    """Readers of one byte per second; `asked` are the bytes that they say first, and after a handshake."""
    loop = asyncio.get_running_loop()
    readers = [await loop.run_in_executor(None, _slow_reader, crowd.port, one) for one in asked * crowd.count]
    print("ready", flush=True)  # noqa: T201 - a program's output
    read = 0
    while not crowd.leave.is_set():
        await asyncio.sleep(1)
        read += sum(_read_one(reader) for reader in readers)
    for reader in readers:
        reader.close()
    return {"read": read}


def _slow_reader(port: int, asked: dict[str, str]) -> socket.socket:
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader.connect(("127.0.0.1", asked.get("port", port)))
    reader.sendall(asked["opening"].encode("latin-1"))
    if asked["then"]:
        said = b""
        while b"\r\n\r\n" not in said:
            said += reader.recv(4096)
        reader.sendall(asked["then"].encode("latin-1"))
    reader.setblocking(False)
    return reader


def _read_one(reader: socket.socket) -> int:
    try:
        return len(reader.recv(1))
    except BlockingIOError:
        return 0


async def ready(crowd: Crowd, _: Any) -> dict[str, Any]:
    """Asks for /readyz on a new connection, again and again; in seconds how long it took, and what was answered."""
    taken: list[tuple[float, float]] = []
    answers: dict[str, int] = {}
    print("ready", flush=True)  # noqa: T201 - a program's output
    while not crowd.leave.is_set():
        began = time.monotonic()
        said = await _exchange(crowd, GET_READY)
        taken.append((began, time.monotonic() - began))
        answers[said] = answers.get(said, 0) + 1
        await asyncio.sleep(READY_SECONDS)
    return {"longest": max(seconds for _, seconds in taken), "times": taken, "answers": answers}


async def requests(crowd: Crowd, kind: Any) -> dict[str, Any]:
    """Whole requests of a kind, one after the other, each of them at least once."""
    answers: dict[str, int] = {}
    waiting = asyncio.Queue[tuple[bytes, bytes]](crowd.count)

    async def ask() -> None:
        while True:
            said = await _exchange(crowd, *await waiting.get())
            answers[said] = answers.get(said, 0) + 1
            waiting.task_done()

    async def hand_out() -> None:
        for rounds in count():
            for one in asks(kind):
                if rounds and crowd.leave.is_set():
                    await waiting.join()
                    return
                await waiting.put(one)

    askers = [asyncio.create_task(ask()) for _ in range(crowd.count)]
    handing = asyncio.create_task(hand_out())
    await crowd.until_told()
    await handing
    for asker in askers:
        asker.cancel()
    await asyncio.gather(*askers, return_exceptions=True)
    return {"answers": answers}


async def _exchange(crowd: Crowd, opening: bytes, then: bytes = b"") -> str:
    """The status line of a request's answer, read to its end; of a socket, once something came after `then`."""
    client = await crowd.open(opening, b"\r\n\r\n" if then else NEVER)
    if then and not client.lost:
        client.transport.write(then)
        async with asyncio.timeout(20):
            await client.more.wait()
    client.transport.abort()
    return client.answer.partition(b"\r\n")[0].decode("latin-1")


def seen(crowd: Crowd) -> dict[str, Any]:
    """How many were let go, and the first line of what they were told."""
    told: dict[str, int] = {}
    for client in crowd.clients:
        line = client.answer.partition(b"\r\n")[0].decode("latin-1")
        told[line] = told.get(line, 0) + 1
    return {"lost": sum(client.lost for client in crowd.clients), "told": told}


KINDS: dict[str, Callable[[Crowd, Any], Awaitable[dict[str, Any]]]] = {
    kind.__name__: kind for kind in (streams, sockets, heads, bodies, pings, requests, slow, ready)
}


async def main() -> None:
    kind, port, count = sys.argv[1:4]
    asked = json.loads(sys.stdin.readline())
    crowd = Crowd(int(port), int(count))
    if kind not in ("streams", "ready"):
        os.nice(POLITENESS)
    loop = asyncio.get_running_loop()
    told = loop.run_in_executor(None, sys.stdin.readline)
    told.add_done_callback(lambda _: crowd.leave.set())
    print(json.dumps(await KINDS[kind](crowd, asked)), flush=True)  # noqa: T201 - a program's output


if __name__ == "__main__":
    uvloop.run(main())
