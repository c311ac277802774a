"""A body that breaks off is told to its reader, also where aiohttp takes the break for an end or tells nobody.

A body without a stated length ends with its connection, so it has ended only when the provider has closed that in
order: over TLS with an alert (RFC 9112, 9.8), whose absence uvloop shows and asyncio's own event loop does not.
"""

from __future__ import annotations

from aiohttp import ClientPayloadError, StreamReader
from aiohttp.client_proto import ResponseHandler
from aiohttp.helpers import _EXC_SENTINEL, set_exception

CLOSED = "polywire_closed"

_close = ResponseHandler.eof_received
_lose = ResponseHandler.connection_lost
_fail = ResponseHandler.set_exception


def tell_breaks() -> None:
    """Have the connections of aiohttp's clients tell every break."""
    ResponseHandler.eof_received = _closed  # type: ignore[method-assign]  # the same signature
    ResponseHandler.connection_lost = _lost  # type: ignore[method-assign]  # the same signature
    ResponseHandler.set_exception = _failed  # type: ignore[method-assign]  # the same signature


def _closed(self: ResponseHandler) -> None:
    vars(self)[CLOSED] = True
    _close(self)


def _lost(self: ResponseHandler, exc: BaseException | None) -> None:
    if exc is not None or CLOSED not in vars(self):
        _break(self, exc)
    _lose(self, exc)


def _failed(self: ResponseHandler, exc: BaseException, exc_cause: BaseException = _EXC_SENTINEL) -> None:
    """What cannot be parsed; aiohttp tells only who waits for a head."""
    _fail(self, exc, exc_cause)
    _break(self, exc)


def _break(connection: ResponseHandler, cause: BaseException | None) -> None:
    body = connection._payload
    # A WebSocket's queue is none.
    if isinstance(body, StreamReader) and not body.is_eof() and body.exception() is None:
        error = ClientPayloadError("The connection broke in the middle of the body.")
        set_exception(body, error, cause or error)
