"""A TCP proxy on loopback that does one thing wrong to what comes back through it.

Harmless faults are done to what goes through it the other way as well.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from urllib.parse import urlsplit

MARK = b"Hel"
"""What a fault counts its bytes from: the first piece of every fake's answer."""


class Fault(Enum):
    """What goes wrong. `harmless` ones must not be noticed."""

    NONE = "none"
    DELAY = "30 ms before every read"
    ONE_BYTE = "1-byte writes"
    SLOW_READ = "its reader takes 512 bytes at a time"
    STALL_AT_ONCE = "stall before the answer"
    CUT_AT_ONCE = "cut before the answer"
    RESET_AT_ONCE = "RST before the answer"
    STALL = "stall after 40 bytes"
    CUT = "cut after 40 bytes"
    RESET = "RST after 40 bytes"

    @property
    def harmless(self) -> bool:
        return self in (Fault.NONE, Fault.DELAY, Fault.ONE_BYTE, Fault.SLOW_READ)

    @property
    def at_once(self) -> bool:
        return self in (Fault.STALL_AT_ONCE, Fault.CUT_AT_ONCE, Fault.RESET_AT_ONCE)


BYTES = 40
DELAY_SECONDS = 0.03


@dataclass(slots=True)
class Proxy:
    """Where the proxy listens, its connections, and what it does to those that are opened from now on."""

    fault: Fault
    url: str = ""
    connections: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    def change(self, fault: Fault) -> None:
        """Do something else from now on; the connections that are there are closed."""
        self.fault = fault
        for task in list(self.connections):
            task.cancel()


@asynccontextmanager
async def proxy(target: str, fault: Fault) -> AsyncIterator[Proxy]:
    """A proxy before `target`, a URL on loopback."""
    found = Proxy(fault)
    host, port = urlsplit(target).hostname, urlsplit(target).port

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        found.connections.add(task)
        try:
            upstream, upward = await asyncio.open_connection(host, port)
            try:
                await _both(reader, writer, upstream, upward, found.fault)
            finally:
                upward.transport.abort()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            found.connections.discard(task)
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield found
    finally:
        server.close()
        found.change(fault)
        await asyncio.gather(*found.connections, return_exceptions=True)


async def _both(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    upstream: asyncio.StreamReader,
    upward: asyncio.StreamWriter,
    fault: Fault,
) -> None:
    """Until either side has ended; the client's end is passed on at once."""
    there = asyncio.create_task(_forward(reader, upward, fault))
    back = asyncio.create_task(_spoil(upstream, writer, fault))
    try:
        await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
        if back.done():
            back.result()
    finally:
        there.cancel()
        back.cancel()
        await asyncio.gather(there, back, return_exceptions=True)


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fault: Fault) -> None:
    with suppress(OSError):
        while data := await reader.read(_reading(fault)):
            await _harmless(writer, data, fault)


async def _spoil(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fault: Fault) -> None:
    seen = b""
    while data := await reader.read(_reading(fault)):
        if fault.at_once:
            await _break(writer, fault)
            return
        if fault.harmless:
            await _harmless(writer, data, fault)
            continue
        before, seen = len(seen), seen + data
        place = seen.find(MARK)
        if place >= 0 and len(seen) >= place + BYTES:
            writer.write(data[: max(0, place + BYTES - before)])
            await writer.drain()
            await _break(writer, fault)
            return
        writer.write(data)
        await writer.drain()


def _reading(fault: Fault) -> int:
    return 512 if fault is Fault.SLOW_READ else 65536


async def _harmless(writer: asyncio.StreamWriter, data: bytes, fault: Fault) -> None:
    if fault is Fault.DELAY:
        await asyncio.sleep(DELAY_SECONDS)
    await _write(writer, data, 1 if fault is Fault.ONE_BYTE else len(data))


async def _write(writer: asyncio.StreamWriter, data: bytes, size: int) -> None:
    for start in range(0, len(data), size):
        writer.write(data[start : start + size])
        await writer.drain()
        if size == 1:
            await asyncio.sleep(0)


async def _break(writer: asyncio.StreamWriter, fault: Fault) -> None:
    if fault in (Fault.STALL, Fault.STALL_AT_ONCE):
        await asyncio.Event().wait()
    if fault in (Fault.RESET, Fault.RESET_AT_ONCE):
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
    else:
        writer.close()
