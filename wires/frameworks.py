"""What BentoML and uvicorn do that they offer no setting for. Applied once, when the service is imported."""

from __future__ import annotations

import gc
from functools import partialmethod

import uvicorn
from bentoml._internal.server.http.traffic import TimeoutMiddleware
from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
from starlette.types import Receive, Scope, Send

NEW_OBJECTS = 5_000
"""How many more objects there are before garbage is looked for among the new ones."""


def tune() -> None:
    """Set the defaults that this service needs."""
    # PCM does not get smaller, and trying costs most of a core's streams. Its access log is shown nowhere, and written.
    uvicorn.Config.__init__ = partialmethod(  # type: ignore[assignment, method-assign]  # defaults, no override
        uvicorn.Config.__init__, ws_per_message_deflate=False, access_log=False
    )
    # It leaves a timer behind for every request, for as long as its time is; ours are limits.first_event_seconds.
    TimeoutMiddleware.__call__ = _pass_on  # type: ignore[method-assign]  # the same signature, but for aliases
    # It reads the environment, and builds a URL, to find that no path of this service is traced.
    OpenTelemetryMiddleware.__call__ = _pass_on  # type: ignore[method-assign]  # the same signature, but for aliases
    # The streams at work hold more than Python's 700 new objects, so it would look through them at every third request.
    gc.set_threshold(NEW_OBJECTS)
    keep_what_is_loaded()


def keep_what_is_loaded() -> None:
    """Leave out of every collection what there is by now.

    A full one walks everything that was imported, 0.1 s in which all streams wait; none of it is ever garbage.
    """
    gc.freeze()


async def _pass_on(
    self: TimeoutMiddleware | OpenTelemetryMiddleware, scope: Scope, receive: Receive, send: Send
) -> None:
    await self.app(scope, receive, send)
