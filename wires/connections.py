"""Bounds on connections before there is a request: how long a head may take, how large it may be, how many there are.

uvicorn has no such bounds and BentoML hands no options to it, so its protocol class is replaced by this one, which
uvicorn looks up when the server starts.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable, Sized
from socket import SO_SNDBUF, SOL_SOCKET
from typing import Any, ClassVar, cast
from weakref import ref

from starlette.responses import Response
from uvicorn.protocols.http import auto
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gateway.config import Limits
from gateway.errors import GatewayError, InvalidRequest, RateLimited, reason_phrase
from wires.base import Wire, retry_headers
from wires.cork import Cork
from wires.endings import Ending, lingering
from wires.paces import ENDS, HANDSHAKES
from wires.response_body import SHORT_WAY

WireOf = Callable[[str], Wire]
DEPARTURES = "polywire.departures"
"""Where a scope keeps what is called, once each, when its client leaves; by what has it called."""
SEND_BYTES = 128 * 1024
"""What the system may hold of an answer that its reader does not take; by itself it holds megabytes of each."""
MOST_WAITING = 8
"""Requests that may wait behind the one that is answered; beyond them nothing is read, so no departure is seen."""


def bound_connections(limits: Limits, wire_of: WireOf) -> None:
    """Hold every connection of this process to `limits`, and let it have as many files as the system allows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    BoundedProtocol.limits = limits
    BoundedProtocol.wire_of = staticmethod(wire_of)
    auto.AutoHTTPProtocol = BoundedProtocol


def open_connections() -> int:
    """How many connections this process has."""
    return len(BoundedProtocol.everybody)


class ChunkedWay:
    """The `ShortWay` of one answer in chunks."""

    __slots__ = ("_cycle", "_has_body")

    def __init__(self, cycle: RequestResponseCycle) -> None:
        # The scope holds this, and the cycle holds the scope.
        self._cycle = ref(cycle)
        self._has_body = cycle.scope["method"] != "HEAD"

    def received(self) -> bytes | None:
        """As ShortWay says."""
        cycle = self._cycle()
        if cycle is None or cycle.more_body or cycle.disconnected or not cycle.message_event.is_set():
            return None
        # As the cycle's own `receive` does.
        body, cycle.body = bytes(cycle.body), bytearray()
        cycle.message_event.clear()
        return body

    def flows(self) -> bool:
        """As ShortWay says."""
        cycle = self._cycle()
        return cycle is not None and not (cycle.flow.write_paused or cycle.disconnected)

    def ready(self) -> bool:
        """As ShortWay says."""
        cycle = self._cycle()
        return (
            self._has_body
            and cycle is not None
            and cycle.chunked_encoding is True
            and not (cycle.flow.write_paused or cycle.response_complete or cycle.disconnected)
        )

    def put(self, data: bytes, *, last: bool = False) -> None:
        """As ShortWay says."""
        cycle = self._cycle()
        if cycle is not None:
            cork: Any = cycle.transport
            write = cork.write if last else cork.write_at_once
            write(b"%x\r\n%b\r\n" % (len(data), data))


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1, with a clock and a measure on every request's head, and on what comes after an answer.

    When there are too many connections, the one goes that has waited longest with its head unfinished: whoever holds
    thousands of them open keeps nobody out. Those that only linger (wires/endings.py) are not counted here.
    """

    limits: ClassVar[Limits] = Limits()
    wire_of: ClassVar[WireOf]
    everybody: ClassVar[Sized] = ()
    """The open connections, WebSockets too."""
    _unfinished: ClassVar[dict[BoundedProtocol, None]] = {}
    """Oldest first."""
    _clock: asyncio.TimerHandle | None = None
    _head_open = True
    _head_bytes = 0
    """Of the head, or of what came since the last one that is nobody's."""
    _departures: dict[object, Callable[[], None]]
    url = b""

    def connection_made(self, transport: Any) -> None:
        self._ending = Ending(transport, self, self.limits.header_seconds, self.limits.request_bytes)
        self._cork = Cork(self._ending.as_transport, self.loop)
        super().connection_made(cast(Any, self._cork))
        BoundedProtocol.everybody = self.connections
        self._departures = {}
        transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_SNDBUF, SEND_BYTES)
        if len(self.connections) - lingering() > self.limits.connections:
            leaving = next(iter(self._unfinished), self)
            leaving._refuse(_full(self.limits))
            if leaving is self:
                return
        self._start_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_clock()
        self._ending.lost()
        super().connection_lost(exc)
        for leave in list(self._departures.values()):
            leave()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._head_open:
            self._start_clock()
            self._head_bytes += len(data)
            if self._head_bytes > self.limits.header_bytes:
                self._refuse(_too_large(self.limits))
        elif self._answered and self.parser is not None:
            # The rest of a body that was not waited for, or line breaks: uvicorn lets them go on for ever.
            self._start_clock()
            self._head_bytes += len(data)
            if self._head_bytes > self.limits.request_bytes:
                self._end()

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio heeds what it returns
        # At once where somebody has to hear of it; and where TLS closes it whatever this says.
        if self.scheme == "https" or not self._answered:
            self._end()
            return False
        return not ENDS.do(self._end)

    def unheard(self) -> bool:
        """As Owner says: an answer that did not wait for all of its request, or for those behind it."""
        return bool(self.pipeline) or (self.cycle is not None and self.cycle.response_complete and self.cycle.more_body)

    def said_goodbye(self) -> bool:
        """As Owner says."""
        return False

    def send_400_response(self, msg: str) -> None:
        if self._answered:
            self._refuse(InvalidRequest(msg))
        else:
            super().send_400_response(msg)

    def shutdown(self) -> None:
        if self._answered:
            self._end()
        else:
            super().shutdown()

    def handle_websocket_upgrade(self) -> None:
        if not HANDSHAKES.do(self._upgrade):
            self.transport.pause_reading()

    def _upgrade(self) -> None:
        if self.transport.is_closing():
            return
        self._stop_clock()
        self.transport.resume_reading()
        # What a socket sends is whole.
        self._cork.flush()
        self.transport = self._cork.open
        super().handle_websocket_upgrade()
        # It refers to what refers to it, and nothing more comes this way.
        self.parser = None  # type: ignore[assignment]  # as when the connection is lost

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_open, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        self._head_open = False
        self._stop_clock()
        self.scope[DEPARTURES] = self._departures  # type: ignore[literal-required]  # ASGI lets a server add some
        super().on_headers_complete()
        if self.cycle is not None and self.cycle.scope is self.scope:
            self.scope[SHORT_WAY] = ChunkedWay(self.cycle)  # type: ignore[literal-required]  # as above
        if 0 < len(self.pipeline) <= MOST_WAITING:
            # uvicorn stops reading at the first of them, and so would not see its client leave.
            self.flow.resume_reading()

    def _start_clock(self) -> None:
        if self._clock is None:
            self._clock = self.loop.call_later(self.limits.header_seconds, self._refuse_late)
            self._unfinished[self] = None

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None
            del self._unfinished[self]

    def _refuse_late(self) -> None:
        self._refuse(_too_slow(self.limits))

    @property
    def _answered(self) -> bool:
        """Whether every request that came so far has its answer."""
        return self.cycle is None or self.cycle.response_complete

    def _end(self) -> None:
        self._cork.flush()
        self._ending.end()

    def _refuse(self, error: GatewayError) -> None:
        """Answer a request that has not come in the shape of the wire whose path was said, if it was; and close."""
        self._stop_clock()
        if self.transport.is_closing():
            return
        if self._answered and self._head_open:
            path = self.url.partition(b"?")[0].decode("latin-1")
            self._cork.write_at_once(_as_bytes(BoundedProtocol.wire_of(path).refuse(error), error))
            self._ending.linger()
        else:
            self._end()


def _as_bytes(response: Response, error: GatewayError) -> bytes:
    headers = dict(response.raw_headers)
    headers |= {name.encode(): value.encode() for name, value in retry_headers(error).items()}
    headers[b"connection"] = b"close"
    lines = [f"HTTP/1.1 {response.status_code} {reason_phrase(response.status_code)}".encode()]
    lines += [b"%s: %s" % header for header in headers.items()]
    return b"\r\n".join(lines) + b"\r\n\r\n" + bytes(response.body)


def _full(limits: Limits) -> RateLimited:
    return RateLimited(
        f"All {limits.connections} connections are in use; try again in a moment.", status=503, retry_after=1
    )


def _too_large(limits: Limits) -> InvalidRequest:
    return headers_too_large(limits.header_bytes)


def _too_slow(limits: Limits) -> InvalidRequest:
    return InvalidRequest(
        f"The request's head did not come within {limits.header_seconds:g} s.", status=408, code="headers_stalled"
    )


def headers_too_large(most: int) -> InvalidRequest:
    """The refusal of a head that is larger than `most` bytes."""
    return InvalidRequest(f"The request's headers are larger than {most} bytes.", status=431, code="headers_too_large")
