"""The order in which many streams are read while the event loop has all it can do.

libuv takes up to 1,024 ready connections from the system at a time and reads them all before it looks for more. What
then arrives a moment too late is read at the end of the next round, so a token waits for up to two of them. A crowd is
read a few at a time, in the order in which its tokens arrived: none waits for longer than one round, and what comes
meanwhile for the same stream is read with it. Few streams are left to the event loop, which does that for less, and so
are those over TLS.
"""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Protocol
from weakref import WeakKeyDictionary

CROWD = 128
"""Streams without TLS from which they are read in order, until half of them are left."""
AT_A_TIME = 32
"""Or as many as there are over TLS, all of which the event loop may read in one turn: none is served before others."""
READ_BYTES = 64 * 1024
NONE = -1
SYSTEM_HAS_IT = hasattr(select, "epoll")
"""Linux; elsewhere the event loop reads them all."""


class Stream(Protocol):
    """A body that is being read."""

    plain: bool
    """Whether its connection has no TLS."""

    @property
    def reading(self) -> asyncio.Transport | None:
        """Its connection, while that is open and more is wanted."""

    def receive(self, data: bytes) -> None:
        """What the connection's protocol does with `data`, whoever reads it by now."""


class Crowd:
    """The streams of one event loop."""

    def __init__(self) -> None:
        self._streams: dict[Stream, int] = {}
        """And the file descriptor of each that is read here."""
        self._plain = 0
        self._read_here: dict[int, Stream] = {}
        self._epoll: select.epoll | None = None
        self._stop_reading: Callable[[], object] = bool

    def join(self, stream: Stream) -> None:
        """Count `stream`, and read it if there are many."""
        self._streams[stream] = NONE
        self._plain += stream.plain
        if self._epoll is None and self._plain >= CROWD and SYSTEM_HAS_IT:
            self._begin()
        else:
            self._take(stream)

    def again(self, stream: Stream) -> None:
        """Read it again, if there are many: it is wanted again after a pause."""
        self._take(stream)

    def leave(self, stream: Stream) -> None:
        """Give it back to the event loop, and all others too when they are few."""
        self._give_back(stream)
        del self._streams[stream]
        self._plain -= stream.plain
        if self._epoll is not None and self._plain < CROWD / 2:
            self._end(self._epoll)

    def _begin(self) -> None:
        try:
            self._epoll = select.epoll()
        except OSError:
            # Too many files are open. It goes on as it did, and the next one tries again.
            return
        loop, fd = asyncio.get_running_loop(), self._epoll.fileno()
        # Not in the context of the request that happens to be the last one.
        Context().run(loop.add_reader, fd, self._read)
        self._stop_reading = partial(loop.remove_reader, fd)
        for stream in self._streams:
            self._take(stream)

    def _end(self, epoll: select.epoll) -> None:
        for stream in self._streams:
            self._give_back(stream)
        self._stop_reading()
        self._stop_reading = bool
        epoll.close()
        self._epoll = None

    def _take(self, stream: Stream) -> None:
        transport = stream.reading
        if self._epoll is None or transport is None or not stream.plain:
            return
        fd = transport.get_extra_info("socket").fileno()
        try:
            self._epoll.register(fd, select.EPOLLIN)
        except FileExistsError:
            # A stream whose connection is this one's by now has not left yet.
            pass
        except OSError:
            # The system takes no more; the event loop reads this one.
            return
        transport.pause_reading()
        self._streams[stream], self._read_here[fd] = fd, stream

    def _give_back(self, stream: Stream) -> None:
        fd, self._streams[stream] = self._streams[stream], NONE
        # The descriptor of a connection that was closed may be another's by now.
        if self._epoll is None or self._read_here.get(fd) is not stream:
            return
        del self._read_here[fd]
        with suppress(OSError):
            self._epoll.unregister(fd)
        if (transport := stream.reading) is not None:
            transport.resume_reading()

    def _read(self) -> None:
        if self._epoll is None:
            return
        over_tls = len(self._streams) - self._plain
        for fd, event in self._epoll.poll(0, max(AT_A_TIME, over_tls)):
            stream = self._read_here.get(fd)
            if stream is None:
                # It left while those before it were read.
                continue
            transport = stream.reading
            if transport is not None and event == select.EPOLLIN and (data := _bytes(fd, transport)):
                try:
                    stream.receive(data)
                except BaseException:
                    # As the event loop does: what was lost must not look like a pause.
                    transport.abort()
                    raise
            else:
                # The end of a connection and its failures are the event loop's to tell.
                self._give_back(stream)


def _bytes(fd: int, transport: asyncio.Transport) -> bytes:
    try:
        return os.read(fd, READ_BYTES)
    except BlockingIOError:
        return b""
    except OSError:
        # It is told once, and would look like an end from here on.
        transport.abort()
        return b""


_crowds: WeakKeyDictionary[asyncio.AbstractEventLoop, Crowd] = WeakKeyDictionary()


def crowd() -> Crowd:
    """That of the running event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _crowds:
        _crowds[loop] = Crowd()
    return _crowds[loop]
