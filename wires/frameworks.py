"""What BentoML and uvicorn do that they offer no setting for. Applied once, when the service is imported."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial, partialmethod
from types import FrameType

import uvicorn
from bentoml._internal.server.http.traffic import TimeoutMiddleware
from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
from starlette.types import ASGIApp

LISTENERS = 4
"""How many connections are accepted in a turn of the loop: each listener takes one."""

TICK_SECONDS = 1.0
"""How often the date in the heads of answers changes; uvicorn wakes ten times in that, to see whether it must stop."""
TOLD = "polywire_told"
"""Where a server keeps what wakes it."""

_startup = uvicorn.Server.startup
_exit = uvicorn.Server.handle_exit


def tune() -> None:
    """Set the defaults that this service needs."""
    # PCM does not get smaller, and trying costs most of a core's streams. Its access log is shown nowhere, and written.
    uvicorn.Config.__init__ = partialmethod(  # type: ignore[assignment, method-assign]  # defaults, no override
        uvicorn.Config.__init__, ws_per_message_deflate=False, access_log=False
    )
    # Who comes alone would wait for all who came before to be served, one in a turn, before being accepted.
    uvicorn.Server.startup = _listen  # type: ignore[method-assign]  # the same signature
    # Each time that it wakes an idle worker, or one of few streams, costs as much as several tokens.
    uvicorn.Server.main_loop = _tick  # type: ignore[method-assign]  # the same signature
    uvicorn.Server.handle_exit = _told_to_exit  # type: ignore[method-assign]  # the same signature
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


async def _tick(self: uvicorn.Server) -> None:
    """Until the server has to stop; it is told of that at once."""
    told = asyncio.Event()
    vars(self)[TOLD] = partial(asyncio.get_running_loop().call_soon_threadsafe, told.set)
    while not await self.on_tick(0):
        try:
            async with asyncio.timeout(TICK_SECONDS):
                await told.wait()
        except TimeoutError:
            continue


def _told_to_exit(self: uvicorn.Server, sig: int, frame: FrameType | None) -> None:
    _exit(self, sig, frame)
    wake: Callable[[], object] | None = vars(self).get(TOLD)
    if wake is not None:
        wake()


def _left_out(_cls: type, app: ASGIApp, *_: object, **__: object) -> ASGIApp:
    """In place of a middleware around `app`: that itself, and so no frame more for each request."""
    return app
