"""uvicorn's WebSocket, whose messages go to the transport as they are: whole, unmasked and never compressed.

A frame object of `websockets` and its checks cost as much as the system call that sends it. Everything but a message on
an open socket is left to uvicorn.
"""

from __future__ import annotations

import struct
from typing import Any

from uvicorn.protocols.websockets import auto
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.protocol import State

TEXT, BINARY = 0x81, 0x82
"""First bytes of a message that is one frame."""


def quicken_sockets() -> None:
    """Have uvicorn use this class, which it looks up when the server starts."""
    auto.AutoWebSocketsProtocol = QuickSocket


class QuickSocket(WebSocketsSansIOProtocol):
    """The server's side of one WebSocket."""

    async def send(self, message: Any) -> None:
        """An ASGI `send`."""
        if message["type"] != "websocket.send" or not self._is_plain():
            await super().send(message)
            return
        data = message.get("bytes")
        if data is None:
            data = message["text"].encode()
            self.transport.write(head(TEXT, len(data)) + data)
        else:
            self.transport.write(head(BINARY, len(data)) + data)

    def _is_plain(self) -> bool:
        """Whether nothing is to be waited for, refused or compressed."""
        return (
            self.handshake_complete
            and self.writable.is_set()
            and self.conn.state is State.OPEN
            and not self.conn.extensions
            and not (self.disconnected or self.close_sent)
        )


def head(first: int, size: int) -> bytes:
    """What stands before a frame's `size` bytes (RFC 6455, 5.2)."""
    if size < 126:
        return bytes((first, size))
    if size < 65536:
        return struct.pack("!BBH", first, 126, size)
    return struct.pack("!BBQ", first, 127, size)
