"""How a provider takes part in the contract suite: see `ProviderEntry`. The list is `providers.py`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

from adapters import build
from gateway.config import ProviderRow, Settings
from gateway.events import FinishReason
from gateway.ports import ChatProvider
from tests.contract.scenario import Scenario
from tests.upstreams.byte_server import ByteServer, Route

CANARY = "sk-canary-0123456789"
"""The key of every row: it must show up in the request's headers and nowhere else."""
CANARY_ENV = "CONTRACT_CANARY_KEY"
MODEL = "m"
STATUSES = {400: 400, 401: 502, 403: 502, 404: 404, 429: 429, 500: 502, 503: 503}


@dataclass(frozen=True, slots=True)
class Running:
    """A provider whose upstream acts out a scenario. `left` waits until every open answer's reader has gone."""

    provider: ChatProvider
    left: Callable[[], Awaitable[None]]
    server: ByteServer | None = None


@dataclass(frozen=True, slots=True)
class ProviderEntry:
    """How one provider takes part.

    `able` names what it can show: `usage`, `reasoning`, `tools`; `http` for one whose upstream is a ByteServer (`row`
    is then needed: it makes the row for a fake's URL), `sse` for one whose stream is server-sent events over plain
    HTTP, where an HTML page, gzip and an endless line mean something. `reasons` are the finish reasons that it knows;
    `statuses` is what each status of the upstream becomes.
    """

    name: str
    start: Callable[[Scenario], AbstractAsyncContextManager[Running]]
    row: Callable[[str], ProviderRow] | None = None
    able: frozenset[str] = frozenset()
    reasons: frozenset[FinishReason] = frozenset({FinishReason.STOP, FinishReason.LENGTH})
    statuses: Mapping[int, int] = field(default_factory=lambda: STATUSES)


def over_http(
    row: Callable[[str], ProviderRow], routes: Callable[[Scenario, str], Mapping[str, Route]]
) -> Callable[[Scenario], AbstractAsyncContextManager[Running]]:
    """`start` of a provider that reaches its upstream over HTTP. `row` gets the fake's URL; `routes` gets the
    scenario and that URL."""

    @asynccontextmanager
    async def start(scenario: Scenario) -> AsyncIterator[Running]:
        async with ByteServer({}) as server:
            server.routes.update(routes(scenario, server.url))
            provider = cast(ChatProvider, build(row(server.url), "chat", Settings()))

            async def left() -> None:
                await asyncio.gather(*(request.gone.wait() for request in server.requests))

            try:
                yield Running(provider, left, server)
            finally:
                await provider.aclose()

    return start
