"""What every request passes, in pure ASGI: its id, a last resort for stray exceptions, the body limit, and the hang-up.

`RequestMiddleware` is the outermost. A client that leaves cancels the task of its request, also before the first byte
was sent, which BentoML alone does not do.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Callable
from functools import cached_property

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.config import Limits
from gateway.errors import GatewayError, InternalError, InvalidRequest, NotFound, PayloadTooLarge
from gateway.stopping import Stage, Stopping, shutting_down
from gateway.telemetry import RequestScope, current_request
from gateway.tracing import TRACEPARENT, current_trace, read_trace
from wires.answer import CLIENT_CLOSED_REQUEST, QUIET_PATHS, Answer
from wires.base import Wire, headers_of
from wires.connections import DEPARTURES, headers_too_large
from wires.response_body import SHORT_WAY, ShortWay

log = logging.getLogger("polywire")

WireOf = Callable[[str], Wire]
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
SANE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
FORM = "application/x-www-form-urlencoded"
SMALL_BODY = 64 * 1024
"""Bytes up to which uvicorn goes on reading while nobody asks for the body, and so sees its client leave."""
SENT_HEADERS = "polywire.sent_headers"
"""Where a scope keeps its headers as they were sent, once they were changed: a signature covers those."""


class RequestMiddleware:
    """Gives each request its id and scope, answers what nobody caught, and logs what was refused."""

    def __init__(self, app: ASGIApp, wire_of: WireOf, stopping: Stopping) -> None:
        self.app = app
        self.wire_of = wire_of
        self.stopping = stopping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        if scope["path"] in QUIET_PATHS:
            await self._serve(scope, receive, send)
        else:
            with self.stopping.work():
                await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        wire = self.wire_of(CONTROL.sub("", scope["path"]))
        headers = headers_of(scope)
        asked = headers.get("x-request-id", "")
        request = RequestScope(asked if SANE_ID.fullmatch(asked) else os.urandom(16).hex(), wire.name)
        _take_forms_for_json(scope, wire)
        token = current_request.set(request)
        trace = current_trace.set(read_trace(Headers(scope=scope).items()) if TRACEPARENT in headers else {})
        answer = Answer(send, request, scope, wire, self.stopping)
        try:
            if scope["type"] == "http" and CONTROL.search(scope["path"]):
                # No route's pattern matches such a path, and the frameworks' own answer is no wire's.
                await wire.refuse(NotFound("There is no such path."))(scope, receive, answer.send)
                return
            await self.app(scope, receive, answer.send)
        except Exception:
            log.exception("request %s on the %s wire failed", request.request_id, wire.name)
            if answer.started or scope["type"] == "websocket":
                raise
            await wire.refuse(InternalError("Polywire failed; the log has the cause."))(scope, receive, answer.send)
        finally:
            answer.log()
            current_trace.reset(trace)
            current_request.reset(token)


def _take_forms_for_json(scope: Scope, wire: Wire) -> None:
    """`curl -d` calls its JSON a form when it is not told otherwise; no route here takes such forms."""
    kind = headers_of(scope).get("content-type")
    if kind is not None and (wire.json_only or kind.startswith(FORM)):
        headers = scope[SENT_HEADERS] = scope["headers"]
        others = [(name, value) for name, value in headers if name != b"content-type"]
        scope["headers"] = [*others, (b"content-type", b"application/json")]


class DisconnectMiddleware:
    """Reads the body ahead of the application, bounds it, and cancels the request when its client leaves."""

    def __init__(self, app: ASGIApp, wire_of: WireOf, limits: Limits, stopping: Stopping) -> None:
        self.app = app
        self.stopping = stopping
        self.wire_of = wire_of
        self.limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._serve_socket(scope, receive, send)
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            self._check(scope)
            connection = _Connection(receive, send, self.limits, scope)
            with self.stopping.at(Stage.ABORTING, connection.abort):
                await connection.run(self.app, scope)
        except _Refused as refused:
            await self.wire_of(scope["path"]).refuse(refused.error)(scope, receive, send)

    async def _serve_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A client that takes nothing, not even the goodbye, is left at the last stage of a stop."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - an ASGI application runs in a task
        with self.stopping.at(Stage.ABORTING, task.cancel):
            try:
                await self.app(scope, receive, send)
            except asyncio.CancelledError:
                if self.stopping.stage < Stage.ABORTING or task.uncancel() > 0:
                    raise

    def _check(self, scope: Scope) -> None:
        length = headers_of(scope).get("content-length", "0")
        if not length.isdigit() or int(length) > self.limits.request_bytes:
            raise _Refused(_too_large(self.limits))
        if sum([len(name) + len(value) for name, value in scope["headers"]]) > self.limits.header_bytes:
            raise _Refused(headers_too_large(self.limits.header_bytes))


class _Refused(Exception):
    """The request itself is refused, whatever it asks for."""

    def __init__(self, error: GatewayError) -> None:
        super().__init__(error.code)
        self.error = error


def _too_large(limits: Limits) -> PayloadTooLarge:
    return PayloadTooLarge(f"The request body is larger than {limits.request_bytes} bytes.")


def _too_slow(limits: Limits) -> InvalidRequest:
    return InvalidRequest(
        f"Nothing of the request's body came for {limits.body_stall_seconds:g} s.", status=408, code="body_stalled"
    )


class _Connection:
    """One HTTP exchange.

    Where the server says when the client leaves (wires/connections.py) and the body came at once, nothing is waited
    for; if not, the receiving side is read in a task of its own, from the body's first part on.
    """

    def __init__(self, receive: Receive, send: Send, limits: Limits, scope: Scope) -> None:
        self._departures: dict[object, Callable[[], None]] | None = scope.get(DEPARTURES)
        self._way: ShortWay | None = scope.get(SHORT_WAY)
        self._watched = False
        self._receive = receive
        self._send = send
        self._limits = limits
        self._size, self._more = 0, True
        self._first: Message | None = None
        self._started = self._complete = False
        self._reason: GatewayError | None = None
        self._cancels = 0
        self._task: asyncio.Task[object] | None = None

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        """Run `app`; an answer of status 499 stands for a client that left before one began. Raises _Refused."""
        self._task = task = asyncio.current_task()
        assert task is not None  # noqa: S101 - an ASGI application runs in a task
        watcher: asyncio.Task[None] | None = None
        try:
            # Mostly it is there already, and all of the body: then nothing is waited for, and no queue is needed.
            self._first = await self._read()
            if self._first["type"] != "http.disconnect":
                if self._departures is None or self._more or self._size > SMALL_BODY:
                    self._watched = True
                    watcher = asyncio.get_running_loop().create_task(self._watch())
                else:
                    self._departures[self] = self._leave
                await app(scope, self._next, self._forward)
        except asyncio.CancelledError:
            for _ in range(self._cancels):
                task.uncancel()
            if not self._cancels or task.cancelling():
                raise
        finally:
            self._task = None
            if watcher is not None:
                watcher.cancel()
            elif self._departures is not None:
                self._departures.pop(self, None)
        if self._started:
            return
        if self._reason is not None:
            raise _Refused(self._reason)
        # The request is counted by it, and the server misses no answer.
        await self._send({"type": "http.response.start", "status": CLIENT_CLOSED_REQUEST, "headers": []})
        await self._send({"type": "http.response.body", "body": b""})

    def abort(self) -> None:
        """Break the answer off; one that has not begun becomes a refusal."""
        self._cancel(shutting_down("Polywire is shutting down; try again."))

    @cached_property
    def _rest(self) -> asyncio.Queue[Message]:
        """What came after the first message."""
        return asyncio.Queue(maxsize=16)

    async def _next(self) -> Message:
        """The application's `receive`."""
        if self._first is not None:
            first, self._first = self._first, None
            return first
        return await (self._rest.get() if self._watched else self._receive())

    async def _read(self) -> Message:
        """The next message. Raises _Refused when the body does not keep within its bounds."""
        if not self._more:
            return await self._receive()
        message: Message
        if self._way is not None and (whole := self._way.received()) is not None:
            message = {"type": "http.request", "body": whole}
        else:
            try:
                async with asyncio.timeout(self._limits.body_stall_seconds):
                    message = await self._receive()
            except TimeoutError:
                raise _Refused(_too_slow(self._limits)) from None
        self._more = message.get("more_body", False)
        self._size += len(message.get("body", b""))
        if self._size > self._limits.request_bytes:
            raise _Refused(_too_large(self._limits))
        return message

    async def _watch(self) -> None:
        try:
            while (message := await self._read())["type"] != "http.disconnect":
                await self._rest.put(message)
        except _Refused as refused:
            self._cancel(refused.error)
            return
        await self._rest.put(message)
        self._leave()

    def _leave(self) -> None:
        self._cancel(None)

    def _cancel(self, reason: GatewayError | None) -> None:
        """Give the request up. `reason` is what its client is told, None where that has left; the first one counts."""
        if self._task is not None and not self._complete:
            self._reason = self._reason if self._cancels else reason
            self._cancels += 1
            self._task.cancel()

    async def _forward(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._started = True
        elif not message.get("more_body", False):
            self._complete = True
        await self._send(message)
