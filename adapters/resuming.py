"""What aiohttp does for every chunk of a body that it has no setting for.

It resumes a connection that never paused, which parses no bytes and asks the transport to read what it reads anyway; it
takes the chunks of one read one by one; and it wakes whoever reads for everything that arrives. Each would be done at
each token of each stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aiohttp import StreamReader
from aiohttp.client_proto import ResponseHandler

Take = Callable[[bytes], bool]
"""Takes what one read brought, and says whether it did; if not, the reader is woken."""

_resume = ResponseHandler.resume_reading
_receive = ResponseHandler.data_received
_read = StreamReader._read_nowait


def read_at_once() -> None:
    """Have aiohttp's client connections resume only after a pause, and read all chunks that are there as one."""
    ResponseHandler.data_received = _received  # type: ignore[method-assign]  # the same signature
    ResponseHandler.resume_reading = _resume_if_paused  # type: ignore[method-assign]  # the same signature
    StreamReader._read_nowait = _read_joined  # type: ignore[method-assign]  # the same signature


def _resume_if_paused(self: ResponseHandler, resume_parser: bool = True) -> None:
    if self._reading_paused or self._buffer_paused:
        _resume(self, resume_parser)


def _read_joined(self: StreamReader, n: int) -> bytes:
    chunks = self._buffer
    if n == -1 and len(chunks) > 1 and not self._buffer_offset:
        whole = b"".join(chunks)
        chunks.clear()
        chunks.append(whole)
    return _read(self, n)


@contextmanager
def taking(reader: StreamReader, take: Take) -> Iterator[None]:
    """Within the block, what arrives while `reader` is waited for is offered to `take` first."""
    protocol = reader._protocol
    protocol.__dict__["polywire_take"] = reader, take
    try:
        yield
    finally:
        protocol.__dict__.pop("polywire_take", None)


def _received(self: ResponseHandler, data: bytes) -> None:
    reader, take = self.__dict__.get("polywire_take", (None, None))
    waiter = None if reader is None else reader._waiter
    if waiter is None or waiter.done():
        _receive(self, data)
        return
    # Nobody is to be woken before it is known what came.
    reader._waiter = None
    _receive(self, data)
    if (error := reader.exception()) is not None:
        waiter.set_exception(error)
    elif reader.is_eof() or (reader._buffer and not take(b"".join(reader._buffer))):
        waiter.set_result(None)
    else:
        if reader._buffer:
            _read(reader, -1)
        reader._waiter = waiter
