"""Bounds on connections before there is a request: how long a head may take, how large it may be, how many there are.

uvicorn has no such bounds and BentoML hands no options to it, so its protocol class is replaced by this one, which
uvicorn looks up when the server starts.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any

from uvicorn.protocols.http import auto
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.config import Limits

REFUSAL = b"HTTP/1.1 %s\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
TOO_LARGE = b"431 Request Header Fields Too Large"
TOO_SLOW = b"408 Request Timeout"
FULL = b"503 Service Unavailable"


def bound_connections(limits: Limits) -> None:
    """Hold every connection of this process to `limits`, and let it have as many files as the system allows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    BoundedProtocol.limits = limits
    auto.AutoHTTPProtocol = BoundedProtocol


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1, with a clock and a measure on every request's head."""

    limits = Limits()
    _clock: asyncio.TimerHandle | None = None
    _head_open = True
    _head_bytes = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._close(FULL)
            return
        self._start_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_clock()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._head_open:
            self._head_bytes += len(data)
            if self._head_bytes > self.limits.header_bytes:
                self._close(TOO_LARGE)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_open, self._head_bytes = True, 0
        self._start_clock()

    def on_headers_complete(self) -> None:
        self._head_open = False
        self._stop_clock()
        super().on_headers_complete()

    def _start_clock(self) -> None:
        if self._clock is None:
            self._clock = self.loop.call_later(self.limits.header_seconds, self._close, TOO_SLOW)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _close(self, status: bytes) -> None:
        self._stop_clock()
        if not self.transport.is_closing():
            self.transport.write(REFUSAL % status)
            self.transport.close()
