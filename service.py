"""The composition root: Settings -> Gateway -> FastAPI app -> the BentoML service. Nothing else."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any

import bentoml
import click
from bentoml._internal.configuration.containers import BentoMLContainer
from bentoml._internal.context import server_context
from pydantic import Field
from starlette.middleware.cors import CORSMiddleware

from adapters import build
from gateway.access_log import configure_logging
from gateway.catalog import Gateway
from gateway.config import Settings
from gateway.config_errors import ConfigError
from gateway.stopping import Stage
from stores import open_store
from wires import create_app, generate, wire_of
from wires.auth import AuthMiddleware
from wires.connections import bound_connections
from wires.direct import DirectMiddleware, JsonRoute
from wires.frameworks import tune
from wires.garbage import keep_what_is_loaded, tune_collector
from wires.generate import ChatMessage
from wires.interrupts import pass_on_second_interrupt
from wires.limits import LimitMiddleware
from wires.middleware import DisconnectMiddleware, RequestMiddleware
from wires.ports import check_grpc_port, check_port
from wires.quick_socket import quicken_sockets
from wires.signatures import SignatureMiddleware
from wires.supervisor import leave_with_supervisor, name_supervisor

configure_logging()
try:
    settings = Settings.load()
    store = open_store(settings.store)
except ConfigError as error:
    raise SystemExit(str(error)) from None
bound_connections(settings.limits, wire_of)
quicken_sockets()
gateway = Gateway(settings, build, store)
app = create_app(gateway, store)


@bentoml.service(
    name="polywire",
    workers=settings.workers,
    # A span per ASGI message costs five times the rest of a token's way, and Polywire logs for itself.
    tracing={"excluded_urls": [".*"]},
    logging={"access": {"enabled": False}},
    # Its labels hold raw paths; `/metrics` is ours (gateway/exposition.py).
    metrics={"enabled": False},
)
@bentoml.asgi_app(app)
class Polywire:
    """Any streaming client, over the protocol it already speaks, streams text and speech from any model backend."""

    @bentoml.on_deployment  # type: ignore[untyped-decorator]  # BentoML ships no type for it
    def check_ports() -> None:
        """End with a sentence when a port cannot be had."""
        serve = click.get_current_context(silent=True)  # nobody else knows the host and port that were asked for
        try:
            if serve is not None and "port" in serve.params:
                http = BentoMLContainer.http
                check_port(serve.params["host"] or http.host.get(), serve.params["port"] or http.port.get())
            check_grpc_port(settings)
        except OSError as error:
            raise SystemExit(str(error)) from None

    @bentoml.on_deployment  # type: ignore[untyped-decorator]  # BentoML ships no type for it
    def watch_over_workers() -> None:
        """Have a second Ctrl-C end the workers at once, and the supervisor's own end too."""
        pass_on_second_interrupt()
        name_supervisor()

    @bentoml.on_startup  # type: ignore[untyped-decorator]  # BentoML ships no type for it
    def keep_what_is_loaded(self) -> None:
        """Once more than at import: by now the application and its routes are there."""
        keep_what_is_loaded()

    @bentoml.on_startup  # type: ignore[untyped-decorator]  # BentoML ships no type for it
    def leave_with_supervisor(self) -> None:
        """Only where there is one: whoever runs a worker alone may leave before it."""
        if server_context.worker_index is not None:
            leave_with_supervisor()

    async def __is_ready__(self) -> bool:
        """Drives `/readyz`: not ready from the moment that this worker is told to stop."""
        return gateway.stopping.stage is Stage.SERVING

    @bentoml.api  # type: ignore[untyped-decorator]  # BentoML ships no type for it
    async def generate(
        self,
        prompt: str,
        ctx: bentoml.Context,
        model: str | None = None,
        system: str | None = None,
        messages: list[ChatMessage] | None = None,
        max_tokens: Annotated[int | None, Field(ge=1)] = None,
        temperature: Annotated[float | None, Field(ge=0, le=2)] = None,
        top_p: Annotated[float | None, Field(ge=0, le=1)] = None,
        stop: str | list[str] | None = None,
    ) -> AsyncGenerator[str, None]:
        """Answer `prompt`, piece by piece as the model writes it."""
        request = generate.parse(
            prompt,
            model=model,
            system=system,
            messages=messages,
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            stop=stop,
        )
        framed = generate.asks_for_events(ctx.request)
        ctx.response.headers["content-type"] = generate.media_type(framed=framed)
        async with aclosing(generate.pieces(gateway, request, framed=framed)) as pieces:
            async for piece in pieces:
                yield piece


service: Any = Polywire  # the decorator makes a bentoml.Service of the class
service.add_asgi_middleware(RequestMiddleware, wire_of=wire_of, stopping=gateway.stopping)
if settings.origins:
    # Pages of these origins may read every answer, refusals too; a key is sent by hand, so no cookies are.
    service.add_asgi_middleware(
        CORSMiddleware,
        allow_origins=settings.origins,
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=["x-request-id", "retry-after", "retry-after-ms", "x-should-retry"],
    )
service.add_asgi_middleware(AuthMiddleware, wire_of=wire_of, settings=settings)
service.add_asgi_middleware(LimitMiddleware, wire_of=wire_of, allowance=gateway.allowance, limits=settings.limits)
service.add_asgi_middleware(DisconnectMiddleware, wire_of=wire_of, limits=settings.limits, stopping=gateway.stopping)
service.add_asgi_middleware(SignatureMiddleware, wire_of=wire_of, settings=settings)
own = {("POST", "/generate"): JsonRoute(generate.respond, service.apis["generate"].input_spec)}
service.add_asgi_middleware(DirectMiddleware, application=app, wire_of=wire_of, more=own)
tune()
tune_collector()
