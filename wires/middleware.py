"""What every request passes, in pure ASGI: its id, a last resort for stray exceptions, the body limit, and the hang-up.

`RequestMiddleware` is the outermost. A client that leaves cancels the task of its request, also before the first byte
was sent, which BentoML alone does not do.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.config import Limits
from gateway.errors import GatewayError, InternalError, InvalidRequest, NotFound, PayloadTooLarge
from gateway.telemetry import RequestScope, current_request, log_refusal
from wires.base import Wire, unknown_route, wrong_method

log = logging.getLogger("polywire")

WireOf = Callable[[str], Wire]
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
SANE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
CLIENT_CLOSED_REQUEST = 499
FORM = b"application/x-www-form-urlencoded"


class RequestMiddleware:
    """Gives each request its id and scope, answers what nobody caught, and logs what was refused."""

    def __init__(self, app: ASGIApp, wire_of: WireOf) -> None:
        self.app = app
        self.wire_of = wire_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        wire = self.wire_of(CONTROL.sub("", scope["path"]))
        asked = Headers(scope=scope).get("x-request-id", "")
        request = RequestScope(asked if SANE_ID.fullmatch(asked) else uuid4().hex, wire.name)
        _take_forms_for_json(scope)
        token = current_request.set(request)
        answer = _Answer(send, request, scope, wire)
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
            current_request.reset(token)


def _take_forms_for_json(scope: Scope) -> None:
    """`curl -d` calls its JSON a form when it is not told otherwise; no route here takes such forms."""
    headers = scope["headers"]
    if any(name == b"content-type" and value.startswith(FORM) for name, value in headers):
        others = [(name, value) for name, value in headers if name != b"content-type"]
        scope["headers"] = [*others, (b"content-type", b"application/json")]


class _Answer:
    """Passes the answer on, with the request id in its head; replaces an answer whose true error is known.

    That nobody has a route for the request is said by the wire as well, and not by the framework's bare words.
    """

    def __init__(self, send: Send, request: RequestScope, scope: Scope, wire: Wire) -> None:
        self._send = send
        self._request = request
        self._scope = scope
        self._wire = wire
        self._replaced = False
        self._held: Message | None = None
        self.started = False

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.body":
            if self._held is not None:
                await self._release(self._held, message)
            elif not self._replaced:
                await self._send(message)
            return
        if kind in ("http.response.start", "websocket.accept", "websocket.http.response.start"):
            refusal = self._request.refusal or self._unrouted(message)
            if refusal is not None and not self.started:
                await self._replace(refusal)
                return
            if self._wire.explain is not None and message.get("status") == 400 and not self.started:
                self._held = message
                return
            await self._start(message)
            return
        await self._send(message)

    async def _release(self, head: Message, body: Message) -> None:
        """Send a refusal that was held back until its body told whether the framework wrote it."""
        self._held = None
        error = self._wire.explain(body["body"]) if self._wire.explain else None
        if error is not None:
            await self._replace(self._wire.refuse(error))
            return
        await self._start(head)
        await self._send(body)

    async def _start(self, message: Message) -> None:
        self.started = True
        MutableHeaders(scope=message)["x-request-id"] = self._request.request_id
        status = message.get("status", 101)
        if status >= 400 and self._scope["path"] not in QUIET_PATHS:
            log_refusal(self._request, status)
        await self._send(message)

    def _unrouted(self, message: Message) -> Response | None:
        """The wire's own refusal for the framework's plain `Not Found` and `Method Not Allowed`."""
        status = message.get("status")
        if status not in (404, 405):
            return None
        headers = Headers(raw=message["headers"])
        if not headers.get("content-type", "").startswith("text/plain"):
            return None
        if status == 404:
            return self._wire.refuse(unknown_route(self._scope["path"]))
        allowed = headers.get("allow", "")
        refusal = self._wire.refuse(wrong_method(self._scope["method"], allowed.split(", ")))
        refusal.headers["allow"] = allowed
        return refusal

    async def _replace(self, refusal: Response) -> None:
        self._request.refusal = None
        await refusal(self._scope, _nothing, self.send)
        self._replaced = True


QUIET_PATHS = frozenset({"/livez", "/readyz", "/healthz", "/ping", "/metrics"})


async def _nothing() -> Message:
    raise RuntimeError("an error response reads no body")


class DisconnectMiddleware:
    """Reads the body ahead of the application, bounds it, and cancels the request when its client leaves."""

    def __init__(self, app: ASGIApp, wire_of: WireOf, limits: Limits) -> None:
        self.app = app
        self.wire_of = wire_of
        self.limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            self._check(scope)
            await _Connection(receive, send, self.limits).run(self.app, scope)
        except _Refused as refused:
            await self.wire_of(scope["path"]).refuse(refused.error)(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        length = Headers(scope=scope).get("content-length", "0")
        if not length.isdigit() or int(length) > self.limits.request_bytes:
            raise _Refused(_too_large(self.limits))
        if sum(len(name) + len(value) for name, value in scope["headers"]) > self.limits.header_bytes:
            raise _Refused(
                InvalidRequest(
                    f"The request's headers are larger than {self.limits.header_bytes} bytes.",
                    status=431,
                    code="headers_too_large",
                )
            )


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
    """One HTTP exchange whose receiving side is read in a task of its own."""

    def __init__(self, receive: Receive, send: Send, limits: Limits) -> None:
        self._receive = receive
        self._send = send
        self._limits = limits
        self._messages: asyncio.Queue[Message] = asyncio.Queue(maxsize=16)
        self._started = self._complete = False
        self._reason: GatewayError | None = None
        self._gone = False

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        """Run `app`; an answer of status 499 stands for a client that left before one began."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - an ASGI application runs in a task
        watcher = asyncio.create_task(self._watch(task))
        try:
            await app(scope, self._messages.get, self._forward)
        except asyncio.CancelledError:
            if not (self._gone or self._reason) or task.uncancel() > 0:
                raise
        finally:
            watcher.cancel()
        if self._started:
            return
        if self._reason is not None:
            raise _Refused(self._reason)
        # BentoML's timeout middleware holds the task until it sees an answer.
        await self._send({"type": "http.response.start", "status": CLIENT_CLOSED_REQUEST, "headers": []})
        await self._send({"type": "http.response.body", "body": b""})

    async def _watch(self, task: asyncio.Task[object]) -> None:
        size = 0
        more = True
        while True:
            try:
                async with asyncio.timeout(self._limits.body_stall_seconds if more else None):
                    message = await self._receive()
            except TimeoutError:
                self._reason = _too_slow(self._limits)
                task.cancel()
                return
            if message["type"] == "http.disconnect":
                await self._messages.put(message)
                if not self._complete:
                    self._gone = True
                    task.cancel()
                return
            size += len(message.get("body", b""))
            more = message.get("more_body", False)
            if size > self._limits.request_bytes:
                self._reason = _too_large(self._limits)
                task.cancel()
                return
            await self._messages.put(message)

    async def _forward(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._started = True
        elif not message.get("more_body", False):
            self._complete = True
        await self._send(message)
