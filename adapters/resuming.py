"""What aiohttp does for every chunk of a body that it has no setting for.

It resumes a connection that never paused, which parses no bytes and asks the transport to read what it reads anyway; it
takes the chunks of one read one by one; and it wakes whoever reads for everything that arrives. Each would be done at
each token of each stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from aiohttp import ClientResponse, StreamReader
from aiohttp.client_proto import ResponseHandler

from adapters.answers import AnswerParser
from adapters.crowd import Crowd, crowd

Take = Callable[[bytes], bool]
"""Takes what one read brought, and says whether it did; if not, the reader is woken."""

TAKING = "polywire_taking"
LONGEST_SIZE = 16
"""Characters of a chunk's size; what has more, an extension say, is aiohttp's to read."""
DIGITS = b"0123456789abcdefABCDEF"

_resume = ResponseHandler.resume_reading
_receive = ResponseHandler.data_received
_begin = StreamReader.begin_http_chunk_receiving
_end = StreamReader.end_http_chunk_receiving
_read = StreamReader._read_nowait


def read_at_once() -> None:
    """Have aiohttp's client connections resume only after a pause, and read all chunks that are there as one."""
    ResponseHandler.resume_reading = _resume_if_paused  # type: ignore[method-assign]  # the same signature
    ResponseHandler.data_received = _received  # type: ignore[method-assign]  # the same signature
    StreamReader.begin_http_chunk_receiving = _begun  # type: ignore[method-assign]  # the same signature
    StreamReader.end_http_chunk_receiving = _ended  # type: ignore[method-assign]  # the same signature
    StreamReader._read_nowait = _read_joined  # type: ignore[method-assign]  # the same signature


class taking:  # noqa: N801 - reads as a function: `with taking(response, take):`
    """Within the block, what arrives while the body of `response` is waited for is offered to `take` first."""

    __slots__ = ("_crowd", "_response", "_state", "_take", "_taker")

    def __init__(self, response: ClientResponse, take: Take) -> None:
        self._response = response
        self._take = take
        self._state: dict[str, Any] = {}
        self._taker: _Taking | None = None
        self._crowd: Crowd | None = None

    def __enter__(self) -> None:
        body = self._response.content
        # At its end nothing more arrives; and the reader of an answer that can have no body has no connection.
        if not body.is_eof():
            self._state = vars(body._protocol)
            identity = "content-encoding" not in self._response.headers
            self._state[TAKING] = self._taker = taker = _Taking(body, self._take, identity=identity)
            self._crowd = crowd()
            self._crowd.join(taker)

    def __exit__(self, *_: object) -> None:
        if self._crowd is not None and self._taker is not None:
            self._crowd.leave(self._taker)
        # The connection of an answer that has ended may be another stream's by now.
        if self._taker is not None and self._state.get(TAKING) is self._taker:
            del self._state[TAKING]


class _Taking:
    """Offers what arrives for one reader.

    Chunks that come whole (RFC 9112, 7.1), as a token does, never reach aiohttp's parser as long as that stands between
    two of them: when the last thing that it told was the end of a chunk, and nothing came after the line break there.
    """

    __slots__ = ("_identity", "_protocol", "_reader", "_take", "between", "plain")

    def __init__(self, reader: StreamReader, take: Take, *, identity: bool) -> None:
        self.between = False
        self._protocol = cast(ResponseHandler, reader._protocol)
        transport = self._protocol.transport
        self.plain = transport is not None and transport.get_extra_info("sslcontext") is None
        self._identity = identity
        self._reader = reader
        self._take = take

    @property
    def reading(self) -> asyncio.Transport | None:
        """As Stream says."""
        protocol, transport = self._protocol, self._protocol.transport
        if transport is None or transport.is_closing() or protocol._reading_paused or protocol._buffer_paused:
            return None
        return transport

    def receive(self, data: bytes) -> None:
        """As Stream says."""
        _received(self._protocol, data)

    def received(self, data: bytes) -> None:
        """In place of `data_received`."""
        protocol = self._protocol
        waiter = self._reader._waiter
        if waiter is None or waiter.done():
            _receive(protocol, data)
        elif self.between and self._identity and (body := whole_chunks(data)) and self._take(body):
            return
        else:
            self._offer(protocol, data, waiter)
        if isinstance(protocol._parser, AnswerParser):
            self.between = protocol._parser.between_chunks
        self.between = self.between and data.endswith(b"\r\n")

    def _offer(self, protocol: ResponseHandler, data: bytes, waiter: asyncio.Future[None]) -> None:
        """Have `data` parsed, and wake who waits only for what is not taken."""
        reader = self._reader
        reader._waiter = None
        _receive(protocol, data)
        while reader._buffer and not reader.is_eof() and reader.exception() is None:
            if not self._take(b"".join(reader._buffer)):
                break
            # More may be parsed by this: aiohttp pauses at so many chunks.
            _read(reader, -1)
        if (error := reader.exception()) is not None:
            waiter.set_exception(error)
        elif reader.is_eof() or reader._buffer:
            waiter.set_result(None)
        else:
            reader._waiter = waiter


def whole_chunks(data: bytes) -> bytes:
    """What chunks that are all whole carry; nothing for anything else, also the last chunk of a body."""
    parts = []
    at, end = 0, len(data)
    while at < end:
        line = data.find(b"\r\n", at, at + LONGEST_SIZE)
        digits = data[at:line]
        if line < 0 or digits.strip(DIGITS):
            return b""
        try:
            start = line + 2
            at = start + int(digits, 16)
        except ValueError:
            return b""
        if at == start or data[at : at + 2] != b"\r\n":
            return b""
        parts.append(data[start:at])
        at += 2
    return b"".join(parts)


def _received(self: ResponseHandler, data: bytes) -> None:
    taker: _Taking | None = vars(self).get(TAKING)
    if taker is None:
        _receive(self, data)
    else:
        taker.received(data)


def _begun(self: StreamReader) -> None:
    _begin(self)
    if taker := vars(self._protocol).get(TAKING):
        taker.between = False


def _ended(self: StreamReader) -> None:
    _end(self)
    if taker := vars(self._protocol).get(TAKING):
        taker.between = True


def _resume_if_paused(self: ResponseHandler, resume_parser: bool = True) -> None:
    if self._reading_paused or self._buffer_paused:
        _resume(self, resume_parser)
        taker: _Taking | None = vars(self).get(TAKING)
        if taker is not None:
            crowd().again(taker)


def _read_joined(self: StreamReader, n: int) -> bytes:
    chunks = self._buffer
    if len(chunks) > 1 and (n == -1 or n >= self._size) and not self._buffer_offset:
        whole = b"".join(chunks)
        chunks.clear()
        chunks.append(whole)
    return _read(self, n)
