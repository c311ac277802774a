"""What every wire is made of: its row in the table of wires, the Encoder port and the response that streams.

A route parses its body and returns `StreamResponse(open, encoder, ...)`; everything else about streaming is here.
"""

from __future__ import annotations

import math
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, TypeVar

from fastapi import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from gateway.catalog import Gateway
from gateway.config import Limits
from gateway.errors import GatewayError, InvalidRequest
from gateway.events import Failed, StreamEvent
from gateway.patience import Waited
from gateway.streams import EventStream
from gateway.telemetry import current_request
from wires.response_body import SHORT_WAY, ResponseBody, ShortWay

Frame = TypeVar("Frame", covariant=True)


class Encoder(Protocol[Frame]):
    """Events of one stream, in order, to this wire's frames. Pure: no await, no clock, no logging.

    A wire that has no frame for a failure raises the error of `Failed`: then the body is broken off, never ended.
    """

    def encode(self, event: StreamEvent) -> Iterable[Frame]: ...


@dataclass(frozen=True, slots=True)
class Wire:
    """One northbound protocol: its name (a metrics label), the paths that are its own, and how it says an error.

    `explain` reads a refusal that the framework wrote before the wire was asked, None where it is the wire's own.
    With `json_only` every body is read as JSON, whatever its client calls it.
    """

    name: str
    paths: re.Pattern[str]
    render: Callable[[GatewayError], Response]
    explain: Callable[[bytes], GatewayError | None] | None = None
    json_only: bool = False

    def refuse(self, error: GatewayError) -> Response:
        """The answer to a request that gets no stream; its code goes into the request's log line."""
        scope = current_request.get()
        if scope is not None:
            scope.code = error.code
        return self.render(error)


Open = Callable[[], AbstractAsyncContextManager[AsyncIterator[StreamEvent]]]

READ_HEADERS = "polywire.read_headers"
"""Where a scope keeps its headers, and what was read from them: every middleware looks into them."""
SSE_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}


def gateway_of(request: Request) -> Gateway:
    """The Gateway that the composition root put on the application."""
    gateway: Gateway = request.app.state.gateway
    return gateway


def headers_of(scope: Scope) -> Mapping[str, str]:
    """The request's headers by their names in lower case; of one that came twice the first counts."""
    sent = scope["headers"]
    read_from: object
    headers: Mapping[str, str]
    read_from, headers = scope.get(READ_HEADERS, (None, {}))
    if read_from is not sent:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(sent)}
        scope[READ_HEADERS] = sent, headers
    return headers


def owner_of(request: Request) -> str:
    """Whose request this is: the hashed id of its key, empty where keys are not asked for."""
    owner: str = getattr(request.state, "owner", "")
    return owner


def unknown_route(path: str) -> GatewayError:
    """A path that is nobody's."""
    return InvalidRequest(f"There is no route {path!r}.", status=404, code="unknown_route")


def wrong_method(method: str, allowed: Iterable[str]) -> GatewayError:
    """A path that is somebody's, asked in a way that it does not take."""
    use = " or ".join(sorted(allowed))
    return InvalidRequest(f"{method} is not allowed here; use {use}.", status=405, code="method_not_allowed")


def retry_headers(error: GatewayError) -> dict[str, str]:
    """`Retry-After` in whole seconds (at least 1), where the error says when to come back."""
    return {} if error.retry_after is None else {"retry-after": str(max(1, math.ceil(error.retry_after)))}


class StreamResponse(Response):
    """Opens a stream when the server asks for the response, and sends its frames as they come.

    A refusal before the first event is answered by the wire's own error with its true status. When a provider is silent
    for longer than `limits.keepalive_seconds`, the head and `keepalive` are sent ahead of its first event; from then on
    a failure is a frame. A client that accepts nothing for `limits.send_stall_seconds` is let go.
    """

    def __init__(
        self,
        wire: Wire,
        open_stream: Open,
        encoder: Encoder[bytes],
        *,
        limits: Limits,
        media_type: str = "text/event-stream; charset=utf-8",
        headers: Mapping[str, str] = SSE_HEADERS,
        keepalive: bytes | None = None,
    ) -> None:
        # Not Response's own __init__, which would look for a body's length.
        self.status_code, self.background, self.body = 200, None, b""
        self.raw_headers = list(_encoded(*{"content-type": media_type, **headers}.items()))
        self._open = open_stream
        self._encoder = encoder
        self._wire = wire
        self._limits = limits
        self._keepalive = keepalive

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        way: ShortWay | None = scope.get(SHORT_WAY)
        body = ResponseBody(send, way, self._head(), self._limits, self._keepalive)
        encode = self._encoder.encode
        frames: list[bytes] = []
        try:
            async with self._open() as events:
                stream = events if isinstance(events, EventStream) else None
                if stream is not None and way is not None:
                    stream.hand_to(_Shortcut(body, encode, way))
                async for event in events:
                    frames += encode(event)
                    if stream is not None:
                        for more in stream.rest():
                            frames += encode(more)
                    await body.send(b"".join(frames), last=stream is not None and stream.ended)
                    frames.clear()
        except GatewayError as error:
            if not (body.started or frames):
                await self._wire.refuse(error)(scope, receive, send)
                return
            if not await self._said(body, frames, error):
                return
        except Waited:
            # The client reads nothing: leaving the response unfinished lets it go.
            return
        finally:
            await body.stop()
        await body.end()

    async def _said(self, body: ResponseBody, frames: list[bytes], error: GatewayError) -> bool:
        """Send what waits, and whether the failure was sent as a frame; if not, the response stays unfinished."""
        try:
            said = list(self._encoder.encode(Failed(error)))
        except GatewayError:
            said = []
        try:
            await body.send(b"".join((*frames, *said)))
        except Waited:
            return False
        return bool(said)

    def _head(self) -> Message:
        return {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}


class _Shortcut:
    """Takes events while the task of their response sleeps, and sends their frames at once."""

    __slots__ = ("_body", "_encode", "_way")

    def __init__(self, body: ResponseBody, encode: Callable[[StreamEvent], Iterable[bytes]], way: ShortWay) -> None:
        self._body = body
        self._encode = encode
        self._way = way

    def ready(self) -> bool:
        """Whether nothing has to be sent, or waited for, before their frames."""
        return self._body.quiet and self._way.ready()

    def take(self, items: Sequence[StreamEvent]) -> None:
        """Send the frames of events that are no stream's last ones."""
        frames: list[bytes] = []
        for event in items:
            frames += self._encode(event)
        if data := b"".join(frames):
            self._way.put(data)
            self._body.sent()


@lru_cache(maxsize=64)
def _encoded(*headers: tuple[str, str]) -> Sequence[tuple[bytes, bytes]]:
    """Headers as ASGI has them; nearly all responses have the same."""
    return [(name.encode(), value.encode()) for name, value in headers]
