"""One system call for what a response writes in one turn of the event loop: its head, its first frames, its end.

On a socket to this machine a call costs as much as twenty tokens' way through the gateway.
"""

from __future__ import annotations

import asyncio
from typing import Any


class Cork:
    """A transport that writes once a turn; everything else is the `open` transport's own."""

    __slots__ = ("_loop", "_parts", "open")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self.open = transport
        self._loop = loop
        self._parts: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.open, name)

    def write(self, data: bytes) -> None:
        """Write `data` at the end of this turn, or as soon as something is written at once."""
        if not self._parts:
            self._loop.call_soon(self.flush)
        self._parts.append(data)

    def write_at_once(self, data: bytes) -> None:
        """Write `data`, and what waits before it."""
        if self._parts:
            self._parts.append(data)
            self.flush()
        else:
            self.open.write(data)

    def flush(self) -> None:
        """Write what waits."""
        if self._parts:
            data = b"".join(self._parts)
            self._parts.clear()
            self.open.write(data)

    def is_closing(self) -> bool:
        """As the transport says."""
        return self.open.is_closing()

    def close(self) -> None:
        """Close the transport, once it has written what waits."""
        self.flush()
        self.open.close()
