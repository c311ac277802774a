"""How much may come in: requests per minute and key, handshakes, and open WebSockets. Refusals have the wire's shape.

Health and the page are not counted. Answers of the OpenAI wire say how the key stands (`x-ratelimit-...`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.allowance import Allowance
from gateway.callers import who_asks
from gateway.config import Limits
from gateway.errors import GatewayError
from gateway.slots import Slots
from gateway.telemetry import current_request
from wires.auth import OPEN_PATHS, refuse
from wires.base import Wire


class LimitMiddleware:
    """Stands behind the authentication: it counts for the caller that was admitted."""

    def __init__(self, app: ASGIApp, wire_of: Callable[[str], Wire], allowance: Allowance, limits: Limits) -> None:
        self.app = app
        self.wire_of = wire_of
        self.allowance = allowance
        self.sockets = Slots(limits.sockets, limits.sockets_per_key, what="WebSockets", full_status=503)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or OPEN_PATHS.fullmatch(scope["path"]):
            await self.app(scope, receive, send)
            return
        owner = who_asks().owner
        try:
            if scope["type"] == "websocket":
                await self.allowance.handshake(owner)
                self.sockets.demand(owner)
            else:
                await self._count(owner)
        except GatewayError as error:
            await refuse(self.wire_of(scope["path"]), error, scope, receive, self._telling(scope, owner, send))
            return
        if scope["type"] == "websocket":
            with self.sockets.take(owner):
                await self.app(scope, receive, send)
            return
        await self.app(scope, receive, self._telling(scope, owner, send))

    async def _count(self, owner: str) -> None:
        await self.allowance.request(owner)
        request = current_request.get()
        if request is not None:
            request.counted = True

    def _telling(self, scope: Scope, owner: str, send: Send) -> Send:
        """`send`, with the headers that OpenAI's clients read where a limit applies."""
        if self.wire_of(scope["path"]).name != "openai" or not self._limited(owner):
            return send

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._headers(owner))
            await send(message)

        return tell

    def _limited(self, owner: str) -> bool:
        return any(self.allowance.standing(name, owner) is not None for name in ("requests", "tokens"))

    def _headers(self, owner: str) -> dict[str, str]:
        headers = {}
        for name in ("requests", "tokens"):
            standing = self.allowance.standing(name, owner)
            if standing is None:
                continue
            headers[f"x-ratelimit-limit-{name}"] = str(standing.limit)
            if standing.remaining is not None and standing.reset_seconds is not None:
                headers[f"x-ratelimit-remaining-{name}"] = str(standing.remaining)
                headers[f"x-ratelimit-reset-{name}"] = f"{math.ceil(standing.reset_seconds * 1000)}ms"
        return headers
