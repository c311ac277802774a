"""Northbound: the table of wires and the application that serves them all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.telemetry import TelemetryConfig
from starlette.exceptions import HTTPException
from starlette.responses import Response

from gateway.catalog import Gateway
from gateway.errors import GatewayError, InvalidRequest
from gateway.ports import Store
from gateway.predictions import Predictions
from gateway.responses import Responses
from gateway.stopping import Stage
from gateway.telemetry import tally
from wires import generate, metrics, openai, opensearch, playground, replicate, sagemaker, websocket
from wires.base import Wire, unknown_route, wrong_method
from wires.connections import open_connections
from wires.garbage import GarbageKeeper
from wires.stopping import stop_signals
from wires.validation import first_problem

WIRES: tuple[Wire, ...] = (
    generate.WIRE,
    websocket.WIRE,
    *sagemaker.WIRES,
    replicate.WIRE,
    openai.WIRE,
    opensearch.WIRE,
)
"""The first wire whose `paths` match a path owns it."""
ROUTERS: tuple[APIRouter, ...] = (
    *openai.ROUTERS,
    *websocket.ROUTERS,
    *sagemaker.ROUTERS,
    *replicate.ROUTERS,
    *opensearch.ROUTERS,
    playground.router,
    metrics.router,
)
"""Matched one after the other, so the busiest come first."""
NO_TELEMETRY: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False, "operation_spans": False}
"""FastAPI looks for OpenTelemetry's providers in the environment at every request; gateway/telemetry.py measures."""


@lru_cache(maxsize=512)
def wire_of(path: str) -> Wire:
    """The wire that owns `path`; what is nobody's is answered in the BentoML wire's shape."""
    return next((wire for wire in WIRES if wire.paths.fullmatch(path)), generate.WIRE)


def create_app(gateway: Gateway, store: Store) -> FastAPI:
    """The FastAPI application with every wire's routes; it runs the predictions and the gRPC server, and closes all."""
    ml_streams = opensearch.StreamPool(gateway)
    predictions = Predictions(store, gateway.settings.limits)
    webhooks = replicate.Webhooks(gateway.settings, store, predictions)
    predictions.observers.append(webhooks.deliver)
    responses = Responses(store, gateway.settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        warming = asyncio.create_task(gateway.warm())
        responses.start()
        try:
            async with (
                predictions.serving(),
                _grpc(ml_streams),
                stop_signals(gateway.stopping, gateway.settings.limits.drain_seconds),
            ):
                with gateway.stopping.at(Stage.ENDING, predictions.drain), GarbageKeeper(open_connections):
                    yield
        finally:
            warming.cancel()
            await asyncio.wait([warming])
            await gateway.aclose()
            await responses.aclose()
            await store.aclose()
            tally.write()

    app = FastAPI(title="Polywire", lifespan=lifespan, docs_url=None, redoc_url=None, telemetry=NO_TELEMETRY)
    app.state.gateway = gateway
    app.state.ml_streams = ml_streams
    app.state.store = store
    app.state.predictions = predictions
    app.state.webhooks = webhooks
    app.state.responses = responses
    for router in ROUTERS:
        # Not include_router, whose routes are matched three times over and called through four more frames.
        app.router.routes.extend(router.routes)
    app.add_exception_handler(GatewayError, _gateway_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    _add_catch_all(app)
    return app


@asynccontextmanager
async def _grpc(ml_streams: opensearch.StreamPool) -> AsyncIterator[None]:
    """The gRPC server of this worker, unless its port is 0. It takes no more calls once the worker drains."""
    gateway = ml_streams.gateway
    if not gateway.settings.grpc_port:
        yield
        return
    from wires.opensearch_grpc import GrpcServer

    server = GrpcServer(ml_streams)
    await server.start()
    stopping = gateway.stopping
    try:
        with stopping.at(Stage.DRAINING, server.drain), stopping.at(Stage.ABORTING, server.abort):
            yield
    finally:
        await server.stop()


async def _gateway_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, GatewayError)  # noqa: S101 - registered for this type only
    return wire_of(request.url.path).refuse(error)


async def _validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this type only
    _forget_cause(error)
    return await _gateway_error(request, first_problem(error))


async def _http_error(request: Request, error: Exception) -> Response:
    """What the framework itself refuses: a body that is no UTF-8, a form that is no form."""
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this type only
    _forget_cause(error)
    response = await _gateway_error(request, InvalidRequest(f"{error.detail}.", status=error.status_code))
    response.headers.update(error.headers or {})
    return response


def _forget_cause(error: Exception) -> None:
    """Without this the cause's frames hold `error`, and all of them the body, until a collection finds them."""
    if error.__cause__ is not None:
        error.__cause__.__traceback__ = None


def _add_catch_all(app: FastAPI) -> None:
    """Unknown paths and methods below a wire's prefix answer in that wire's shape; it must be the last route."""

    async def unknown(request: Request) -> Response:
        path = request.url.path
        allowed = sorted(_methods(path))
        if allowed and request.method == "OPTIONS":
            return Response(status_code=204, headers={"allow": ", ".join([*allowed, "OPTIONS"])})
        error = wrong_method(request.method, allowed) if allowed else unknown_route(path)
        response = await _gateway_error(request, error)
        if allowed:
            response.headers["allow"] = ", ".join(allowed)
        return response

    methods = ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE"]
    for prefix in ("/v1", "/invocations", "/endpoints", "/lambda"):
        app.add_route(f"{prefix}/{{path:path}}", unknown, methods=methods, include_in_schema=False)


def _methods(path: str) -> set[str]:
    """The methods that some route takes on `path`."""
    routes = (route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute))
    return {method for route in routes if route.path_regex.match(path) for method in route.methods or ()}
