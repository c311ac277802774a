"""What BentoML and uvicorn do that they offer no setting for. Applied once, when the service is imported."""

from __future__ import annotations

import socket
from functools import partialmethod

import uvicorn
from bentoml._internal.server.http.traffic import TimeoutMiddleware
from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
from starlette.types import ASGIApp

LISTENERS = 4
"""How many connections are accepted in a turn of the loop: each listener takes one."""

_startup = uvicorn.Server.startup


def tune() -> None:
    """Set the defaults that this service needs."""
    # PCM does not get smaller, and trying costs most of a core's streams. Its access log is shown nowhere, and written.
    uvicorn.Config.__init__ = partialmethod(  # type: ignore[assignment, method-assign]  # defaults, no override
        uvicorn.Config.__init__, ws_per_message_deflate=False, access_log=False
    )
    # Who comes alone would wait for all who came before to be served, one in a turn, before being accepted.
    uvicorn.Server.startup = _listen  # type: ignore[method-assign]  # the same signature
    # It leaves a timer behind for every request, for as long as its time is; ours are limits.first_event_seconds.
    TimeoutMiddleware.__new__ = staticmethod(_left_out)  # type: ignore[assignment]  # an application in its place
    # It reads the environment, and builds a URL, to find that no path of this service is traced.
    OpenTelemetryMiddleware.__new__ = staticmethod(_left_out)  # type: ignore[assignment]  # likewise


async def _listen(self: uvicorn.Server, sockets: list[socket.socket] | None = None) -> None:
    """Listen `LISTENERS` times at each socket."""
    for one in sockets or ():
        # All workers share one open file, and a copy takes over what this object believes: a socket that blocks.
        one.setblocking(False)
    await _startup(self, sockets and [*sockets, *(one.dup() for one in sockets * (LISTENERS - 1))])


def _left_out(_cls: type, app: ASGIApp, *_: object, **__: object) -> ASGIApp:
    """In place of a middleware around `app`: that itself, and so no frame more for each request."""
    return app
