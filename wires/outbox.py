"""The sending side of one WebSocket: frames in order, one at a time, let go when the reader takes nothing."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import msgspec
from starlette.types import Message, Send
from starlette.websockets import WebSocketDisconnect

from gateway.patience import Waited, WaitLimit
from wires.quick_socket import BINARY, TEXT, SocketWay

LEFT = (WebSocketDisconnect, RuntimeError, OSError)
"""What a send raises once its client has left, by whether Starlette or the server noticed first."""
_escaped = json.JSONEncoder(separators=(",", ":")).encode


class PeerGone(Exception):
    """The client left or takes nothing any more: nothing can be sent to it."""


class Outbox:
    """Sends to one socket. Raises PeerGone once the client has left or has accepted nothing for `stall_seconds`.

    `way` is the server's short way, where it has one.
    """

    def __init__(self, send: Send, stall_seconds: float, way: SocketWay | None = None) -> None:
        self._send = send
        self._way = way
        self._stall = stall_seconds
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._wait = WaitLimit()
        self.closed = False

    async def json(self, message: dict[str, Any]) -> None:
        """Send one JSON message."""
        if self.ready():
            self.put(message)
        else:
            await self._send_in_turn({"type": "websocket.send", "text": encode(message)})

    async def audio(self, data: bytes) -> None:
        """Send audio as one binary frame."""
        if self.ready():
            self.put(data)
        else:
            await self._send_in_turn({"type": "websocket.send", "bytes": data})

    async def close(self, code: int, reason: str = "") -> None:
        """Close the socket once; a client that has left already is no error, nor is one that accepts nothing."""
        if self.closed:
            return
        self.gone()
        with suppress(TimeoutError, *LEFT):
            async with asyncio.timeout(self._stall):
                await self._send({"type": "websocket.close", "code": code, "reason": reason[:120]})

    def gone(self) -> None:
        """The client has left: nothing more is sent."""
        self.closed = True
        self._wait.stop()

    def ready(self) -> bool:
        """Whether messages may go the short way: the server has one, and nobody waits whom they would overtake."""
        return self._way is not None and not (self.closed or self._waiting) and self._way.ready()

    def put(self, message: dict[str, Any] | bytes) -> None:
        """Send JSON or audio by the short way, while `ready`."""
        if self._way is None:
            return
        if isinstance(message, bytes):
            self._way.put(BINARY, message)
        else:
            self._way.put(TEXT, encode(message).encode())

    async def _send_in_turn(self, message: Message) -> None:
        self._waiting += 1
        try:
            # Turn and connection both send, and each has its own task.
            async with self._lock:
                await self._send_in_time(message)
        finally:
            self._waiting -= 1

    async def _send_in_time(self, message: Message) -> None:
        if self.closed:
            raise PeerGone
        try:
            with self._wait.bounded(self._stall):
                await self._send(message)
        except (Waited, *LEFT) as error:
            self.gone()
            raise PeerGone from error


def encode(message: dict[str, Any]) -> str:
    """JSON in ASCII, so that no client's line splitting and no lone surrogate can break it."""
    try:
        return msgspec.json.encode(message).decode("ascii")
    except UnicodeError:
        return _escaped(message)
