"""A fake upstream in a process of its own, so that what is measured is the service.

It prints its port and speaks OpenAI's chat and speech. The model's name says how: `paced` writes a token every so many
milliseconds for ever, `flood` so many bytes as fast as they are taken, `line` one long line, `deep` nested JSON, `bomb`
zeros in gzip. `GET /report` tells how many streams were asked for, how many are open, and when the last one was left.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import cast

import uvloop

from tests.upstreams.openai_streams import DONE, chunk

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n"
TOKEN = chunk({"content": "Hello "})
BLOCK = b"".join(chunk({"content": "x" * 1000}) for _ in range(16))
MODEL = re.compile(rb'"model": ?"(paced|flood|line|deep|bomb)-?(\d*)"')
LINE_BYTES = 10 * 1024 * 1024
DEPTH = 10_000
BOMB_BYTES = 128 * 1024 * 1024


class Streams:
    """What was asked so far, and who is there."""

    def __init__(self) -> None:
        self.asked = 0
        self.left_at = 0.0
        self.open: set[Peer] = set()
        self.paced: dict[float, set[Peer]] = {}

    def pace(self, peer: Peer, seconds: float) -> None:
        """Write a token to `peer` every so many seconds, at its own time within them."""
        if seconds not in self.paced:
            self.paced[seconds] = set()
            asyncio.get_running_loop().call_later(seconds, self._beat, seconds)
        self.paced[seconds].add(peer)

    def _beat(self, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self._beat, seconds)
        for peer in self.paced[seconds]:
            if peer.writable:
                peer.transport.write(TOKEN)

    def left(self, peer: Peer) -> None:
        self.open.discard(peer)
        for peers in self.paced.values():
            peers.discard(peer)
        self.left_at = time.monotonic()

    def report(self) -> bytes:
        body = json.dumps({"asked": self.asked, "open": len(self.open), "left_at": self.left_at}).encode()
        return b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


class Peer(asyncio.Protocol):
    """One connection: one request and its answer."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._received = bytearray()
        self._pieces: Iterator[bytes] = iter(())
        self.writable = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, blank, body = bytes(self._received).partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        if not blank or len(body) < int(length[1] if length else 0):
            return
        self._received.clear()
        if head.startswith(b"GET /report"):
            self.transport.write(self._streams.report())
            self.transport.close()
            return
        self._streams.asked += 1
        self._streams.open.add(self)
        self._answer(head, body)

    def _answer(self, head: bytes, body: bytes) -> None:
        found = MODEL.search(body)
        kind, amount = (found[1].decode(), int(found[2] or 0)) if found else ("flood", 0)
        compressed = b"content-encoding: gzip\r\n" if kind == "bomb" else b""
        self.transport.write(HEAD + compressed + b"\r\n")
        if kind == "paced":
            self.transport.write(TOKEN)
            self._streams.pace(self, (amount or 100) / 1000)
            return
        speech = b"/audio/speech" in head
        self._pieces = (
            _sound(amount) if speech else {"flood": _flood, "line": _line, "deep": _deep, "bomb": _bomb}[kind](amount)
        )
        self._play()

    def _play(self) -> None:
        for piece in self._pieces:
            self.transport.write(piece)
            if not self.writable:
                return
        self.transport.close()

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self._play()

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self._streams.open:
            self._streams.left(self)


def _flood(amount: int) -> Iterator[bytes]:
    for _ in range(amount // 16_000):
        yield BLOCK
    yield chunk({}, "stop") + DONE


def _sound(amount: int) -> Iterator[bytes]:
    for _ in range(amount // 48_000):
        yield b"\x01\x02" * 24_000


def _line(_: int) -> Iterator[bytes]:
    yield TOKEN + b'data: {"choices": [{"delta": {"content": "'
    for _ in range(LINE_BYTES // 65_536):
        yield b"y" * 65_536
    yield b'"}}]}\n\n' + DONE


def _deep(_: int) -> Iterator[bytes]:
    yield TOKEN + b'data: {"choices": ' + b"[" * DEPTH + b"]" * DEPTH + b"}\n\n" + DONE


def _bomb(_: int) -> Iterator[bytes]:
    yield _packed_bomb()


@cache
def _packed_bomb() -> bytes:
    return gzip.compress(TOKEN + b'data: {"a": "' + b"0" * BOMB_BYTES, 1)


PIECES: dict[str, Callable[[int], Iterator[bytes]]] = {"flood": _flood, "line": _line, "deep": _deep, "bomb": _bomb}


async def main() -> None:
    streams = Streams()
    server = await asyncio.get_running_loop().create_server(lambda: Peer(streams), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - a program's output
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(main())
