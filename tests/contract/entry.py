"""How a provider takes part in the contract suite: see `ProviderEntry`. The list is `providers.py`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from adapters import build
from gateway.config import ProviderRow, Settings
from gateway.events import FinishReason, Usage
from gateway.ports import ChatProvider
from tests.contract.scenario import USAGE, Scenario
from tests.upstreams.byte_server import Answer, ByteServer, Route

CANARY = "sk-canary-0123456789"
"""The secret of every row: it must show up in the request's headers and nowhere else."""
CANARY_ENV = "CONTRACT_CANARY_KEY"
MODEL = "m"
STATUSES = {400: 400, 401: 502, 402: 502, 403: 502, 404: 404, 429: 429, 500: 502, 503: 503}

Routes = Callable[[Scenario, str], Mapping[str, Route]]
"""The fake's routes for a scenario and the fake's URL, that of the stream first."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """The fake behind a provider, and the route at which its answer is streamed."""

    server: ByteServer
    route: str

    @property
    def answer(self) -> Answer:
        """The streamed answer; what is written here is given from now on."""
        route = self.server.routes[self.route]
        assert not callable(route)
        return route if isinstance(route, Answer) else route[-1]

    def answer_with(self, answer: Answer) -> None:
        self.server.routes[self.route] = answer


@dataclass(frozen=True, slots=True)
class Running:
    """A provider whose upstream acts out a scenario. `begun` waits until the upstream was asked for its stream,
    `left` until every open answer's reader has gone."""

    provider: ChatProvider
    model: str
    begun: Callable[[], Awaitable[object]]
    left: Callable[[], Awaitable[object]]
    upstream: Upstream | None = None


@dataclass(frozen=True, slots=True)
class ProviderEntry:
    """How one provider takes part.

    `start` acts out a scenario; one that has a `row` takes fields of it as well.
    `able` names what it can show: `reasoning`, `tools`; `http` for one whose upstream is a ByteServer. `row` makes the
    row for a fake's URL and `routes` are the fake's, where it has one. `reasons` are the finish reasons that it knows;
    `usage` is what it tells of the tokens, None for nothing; `statuses` is what each status of the upstream becomes;
    `tried_again` are those after which it may be asked anew.
    """

    name: str
    start: Callable[..., AbstractAsyncContextManager[Running]]
    row: Callable[[str], ProviderRow] | None = None
    able: frozenset[str] = frozenset()
    reasons: frozenset[FinishReason] = frozenset({FinishReason.STOP, FinishReason.LENGTH})
    usage: Usage | None = USAGE
    statuses: Mapping[int, int] = field(default_factory=lambda: STATUSES)
    tried_again: tuple[int, ...] = (503, 429)
    model: str = MODEL
    routes: Routes | None = None


def over_http(
    name: str, row: Callable[[str], ProviderRow], routes: Routes, *, model: str = MODEL, **more: Any
) -> ProviderEntry:
    """The entry of a provider that reaches its upstream over HTTP. `row` gets the fake's URL."""

    @asynccontextmanager
    async def start(scenario: Scenario, **fields: Any) -> AsyncIterator[Running]:
        async with ByteServer({}) as server:
            server.routes.update(routes(scenario, server.url))
            provider = cast(ChatProvider, build(row(server.url).model_copy(update=fields), "chat", Settings()))
            try:
                yield running(provider, server, model)
            finally:
                await provider.aclose()

    able = frozenset({"http"}) | more.pop("able", frozenset())
    return ProviderEntry(name, start, row, able, model=model, routes=routes, **more)


def running(provider: ChatProvider, server: ByteServer, model: str = MODEL) -> Running:
    """A provider in front of `server`, whose first route is the stream's."""
    upstream = Upstream(server, next(iter(server.routes)))

    async def left() -> None:
        await asyncio.gather(*(request.ended.wait() for request in server.requests))

    return Running(provider, model, lambda: server.until(lambda: bool(server.asked(upstream.route))), left, upstream)
