"""What aiohttp does for every chunk of a body that it has no setting for.

It resumes a connection that never paused, which parses no bytes and asks the transport to read what it reads anyway;
and it takes the chunks of one read one by one. Both would be done at each token of each stream.
"""

from __future__ import annotations

from aiohttp import StreamReader
from aiohttp.client_proto import ResponseHandler

_resume = ResponseHandler.resume_reading
_read = StreamReader._read_nowait


def read_at_once() -> None:
    """Have aiohttp's client connections resume only after a pause, and read all chunks that are there as one."""
    ResponseHandler.resume_reading = _resume_if_paused  # type: ignore[method-assign]  # the same signature
    StreamReader._read_nowait = _read_joined  # type: ignore[method-assign]  # the same signature


def _resume_if_paused(self: ResponseHandler, resume_parser: bool = True) -> None:
    if self._reading_paused or self._buffer_paused:
        _resume(self, resume_parser)


def _read_joined(self: StreamReader, n: int) -> bytes:
    chunks = self._buffer
    if len(chunks) > 1 and (n == -1 or n >= self._size) and not self._buffer_offset:
        whole = b"".join(chunks)
        chunks.clear()
        chunks.append(whole)
    return _read(self, n)
