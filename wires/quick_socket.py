"""uvicorn's WebSocket, whose messages go to the transport as they are: whole, unmasked and never compressed.

A frame object of `websockets`, its checks and the way through the middleware cost more than the system call that sends
it. `put` is that short way, offered as an ASGI extension; whatever cannot take it is left to uvicorn.
"""

from __future__ import annotations

import struct
from typing import Protocol, cast

from starlette.types import Scope
from uvicorn.protocols.websockets import auto
from websockets.protocol import State

from wires.floods import BoundedSocket

TEXT, BINARY = 0x81, 0x82
"""First bytes of a message that is one frame."""


def quicken_sockets() -> None:
    """Have uvicorn use this class, which it looks up when the server starts."""
    auto.AutoWebSocketsProtocol = QuickSocket


EXTENSION = "polywire.short_way"


class SocketWay(Protocol):
    """From a wire to the connection of its client, past the middleware and the server's own checks."""

    def ready(self) -> bool:
        """Whether a message may be sent so; if not, it goes by ASGI's `send`, which waits, refuses or compresses."""

    def put(self, first: int, data: bytes) -> None:
        """Send a message at once, while `ready`; `first` is TEXT or BINARY."""


def short_way(scope: Scope) -> SocketWay | None:
    """The short way to the client of this connection, where its server has one."""
    way: SocketWay | None = scope.get("extensions", {}).get(EXTENSION)
    return way


class QuickSocket(BoundedSocket):
    """The server's side of one WebSocket."""

    async def run_asgi(self) -> None:
        extensions = cast(dict[str, object], self.scope["extensions"])
        extensions[EXTENSION] = self
        try:
            await super().run_asgi()
        finally:
            # Nothing that an ended socket leaves is for the garbage collector to find.
            del extensions[EXTENSION]

    def ready(self) -> bool:
        return (
            self.handshake_complete
            and self.writable.is_set()
            and self.conn.state is State.OPEN
            and not self.conn.extensions
            and not (self.disconnected or self.close_sent)
        )

    def put(self, first: int, data: bytes) -> None:
        self.transport.write(head(first, len(data)) + data)


def head(first: int, size: int) -> bytes:
    """What stands before a frame's `size` bytes (RFC 6455, 5.2)."""
    if size < 126:
        return bytes((first, size))
    if size < 65536:
        return struct.pack("!BBH", first, 126, size)
    return struct.pack("!BBQ", first, 127, size)
