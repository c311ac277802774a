"""The answer on its way out: its request id, its one log line, and the wire's words in place of the framework's."""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import Message, Scope, Send

from gateway.stopping import Stage, Stopping
from gateway.telemetry import RequestScope, count_request, log_refusal, log_request
from wires.base import Wire, unknown_route, wrong_method

QUIET_PATHS = frozenset({"/livez", "/readyz", "/healthz", "/ping", "/metrics"})
CLIENT_CLOSED_REQUEST = 499
PAGE = "/"
PAGE_POLICY = b"default-src 'self' 'unsafe-inline'; img-src 'self' data:"
"""BentoML's page would load a tag manager and badges from other hosts, which would learn who opened it."""


class Answer:
    """Passes the answer on, with the request id in its head; replaces an answer whose true error is known.

    That nobody has a route for the request is said by the wire as well, and not by the framework's bare words.
    """

    def __init__(self, send: Send, request: RequestScope, scope: Scope, wire: Wire, stopping: Stopping) -> None:
        self._send = send
        self._request = request
        self._scope = scope
        self._wire = wire
        self._stopping = stopping
        self._replaced = False
        self._held: Message | None = None
        self._status = 0
        self._complete = False
        self.started = False

    async def send(self, message: Message) -> None:
        """An ASGI `send`."""
        kind = message["type"]
        if kind == "http.response.body":
            await self._send_body(message)
            return
        if kind in ("http.response.start", "websocket.accept", "websocket.http.response.start"):
            refusal = self._request.refusal or self._unrouted(message)
            if refusal is not None and not self.started:
                await self._replace(refusal)
                return
            if self._wire.explain is not None and message.get("status") == 400 and not self.started:
                self._held = message
                return
            self._begin(message)
        await self._send(message)

    def log(self) -> None:
        """Write the request's line where no stream does, once it is over."""
        if self._scope["path"] in QUIET_PATHS or self._request.deferred:
            return
        ended = self._complete or self._scope["type"] == "websocket"
        left = self._status == CLIENT_CLOSED_REQUEST or not ended
        log_request(self._request, self._status or CLIENT_CLOSED_REQUEST, "cancelled" if left else "finished")

    async def _send_body(self, message: Message) -> None:
        if self._held is not None:
            await self._release(self._held, message)
        elif not self._replaced:
            self._complete = self._complete or not message.get("more_body", False)
            await self._send(message)

    async def _release(self, head: Message, body: Message) -> None:
        """Send a refusal that was held back until its body told whether the framework wrote it."""
        self._held = None
        error = self._wire.explain(body["body"]) if self._wire.explain else None
        if error is not None:
            await self._replace(self._wire.refuse(error))
            return
        self._begin(head)
        await self._send(head)
        await self._send_body(body)

    def _begin(self, message: Message) -> None:
        self.started = True
        message["headers"] = [*message["headers"], (b"x-request-id", self._request.request_id.encode())]
        if self._scope["path"] == PAGE:
            message["headers"].append((b"content-security-policy", PAGE_POLICY))
        if self._stopping.stage > Stage.SERVING and message["type"] == "http.response.start":
            # The next request of this client belongs to another worker.
            MutableHeaders(scope=message)["connection"] = "close"
        self._status = message.get("status", 101)
        if self._scope["path"] in QUIET_PATHS:
            return
        count_request(self._request.wire, self._status)
        if self._status >= 400 and self._status != CLIENT_CLOSED_REQUEST:
            log_refusal(self._request, self._status)

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


async def _nothing() -> Message:
    raise RuntimeError("an error response reads no body")
