"""uvicorn's WebSocket, whose messages go to the transport as they are: whole, unmasked and never compressed.

A frame object of `websockets`, its checks and the way through the middleware cost more than the system call that sends
it. `put` is that short way, offered as an ASGI extension; whatever cannot take it is left to uvicorn.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import cast

from starlette.types import Scope
from uvicorn.protocols.websockets import auto
from websockets.protocol import State

from wires.floods import BoundedSocket

TEXT, BINARY = 0x81, 0x82
"""First bytes of a message that is one frame."""


def quicken_sockets() -> None:
    """Have uvicorn use this class, which it looks up when the server starts."""
    auto.AutoWebSocketsProtocol = QuickSocket


Put = Callable[[int, bytes], bool]
EXTENSION = "polywire.put"


def put_of(scope: Scope) -> Put | None:
    """The short way to the client of this connection, where its server has one."""
    put: Put | None = scope.get("extensions", {}).get(EXTENSION)
    return put


class QuickSocket(BoundedSocket):
    """The server's side of one WebSocket."""

    async def run_asgi(self) -> None:
        extensions = cast(dict[str, object], self.scope["extensions"])
        extensions[EXTENSION] = self.put
        await super().run_asgi()

    def put(self, first: int, data: bytes) -> bool:
        """Send a message at once; False when it must go by `send`, which waits, refuses or compresses."""
        if not self._is_plain():
            return False
        self.transport.write(head(first, len(data)) + data)
        return True

    def _is_plain(self) -> bool:
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
