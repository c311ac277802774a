"""The short way to a route that takes one JSON body and nothing else: the busiest requests of every wire.

BentoML, Starlette and FastAPI each match the path again and wrap each message again. Here a route is found by its
method and path. Whatever is not plain sailing, a body that does not fit its schema say, goes the long way, which says
why; so both ways answer alike.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import get_type_hints

import msgspec
from fastapi import FastAPI, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.errors import GatewayError
from wires.base import Wire, headers_of

JSON = "application/json"

Place = tuple[str, str]
"""A method and a path."""


@dataclass(frozen=True, slots=True)
class JsonRoute:
    """A route's function `(request, body) -> Response`; `model` is what its body has to be."""

    call: Callable[[Request, BaseModel], Awaitable[Response]]
    model: type[BaseModel]

    def parse(self, body: bytes) -> BaseModel:
        """Raises ValueError or RecursionError for what does not fit, or is not JSON as it ought to be."""
        return self.model.model_validate(msgspec.json.decode(body))


def json_routes(routes: Iterable[BaseRoute]) -> dict[Place, JsonRoute]:
    """Those that can be called the short way: `(request: Request, body: <model>)` at a path without parameters."""
    found: dict[Place, JsonRoute] = {}
    for route in routes:
        if isinstance(route, APIRoute) and not route.param_convertors and not route.dependencies:
            model = _body_model(route)
            if model is not None:
                found |= {(method, route.path): JsonRoute(route.endpoint, model) for method in route.methods or ()}
    return found


class DirectMiddleware:
    """The innermost: what it does not call itself goes on to BentoML, whose application holds `application`.

    `more` are routes that BentoML has besides those of `application`.
    """

    def __init__(
        self, app: ASGIApp, application: FastAPI, wire_of: Callable[[str], Wire], more: Mapping[Place, JsonRoute] = {}
    ) -> None:
        self.app = app
        self.application = application
        self.wire_of = wire_of
        self.routes: Mapping[Place, JsonRoute] = {**json_routes(application.routes), **more}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self.routes.get((scope.get("method", ""), scope["path"])) if scope["type"] == "http" else None
        if route is None or not _says_json(scope):
            await self.app(scope, receive, send)
            return
        body = await _whole(receive)
        receive = _again(body, receive)
        try:
            parsed = route.parse(body)
        except (ValueError, RecursionError):
            await self.app(scope, receive, send)
            return
        scope["app"] = self.application
        try:
            response = await route.call(Request(scope, receive), parsed)
        except GatewayError as error:
            response = self.wire_of(scope["path"]).refuse(error)
        await response(scope, receive, send)


def _body_model(route: APIRoute) -> type[BaseModel] | None:
    """The model of a function that takes a request and one body, None for any other function."""
    parameters = list(inspect.signature(route.endpoint).parameters)
    if parameters != ["request", "body"] or route.status_code is not None:
        return None
    model = get_type_hints(route.endpoint)["body"]
    return model if isinstance(model, type) and issubclass(model, BaseModel) else None


def _says_json(scope: Scope) -> bool:
    return headers_of(scope).get("content-type", "").startswith(JSON)


async def _whole(receive: Receive) -> bytes:
    """The request's body. A client that leaves meanwhile cancels this task (wires/middleware.py)."""
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


def _again(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives a body that was read once more."""
    unread = [body]

    async def read() -> Message:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        return await receive()

    return read
