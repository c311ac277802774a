"""A registered model in the contract suite: the OpenAI fake behind a connector's template."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from msgspec.structs import replace

from adapters.connector import ConnectorChat
from gateway.catalog import CONNECTORS
from gateway.config import CONNECTOR, Settings
from gateway.connector import Action, Connector
from gateway.events import Delta, Finished, FinishReason
from gateway.request import ChatRequest
from tests.contract.entry import CANARY, STATUSES, ProviderEntry, Running, running
from tests.contract.openai_entry import routes
from tests.contract.scenario import Scenario
from tests.upstreams.byte_server import ByteServer

TRUST = {"trusted_endpoints": (r"^http://127\.0\.0\.1:\d+/.*$",)}


class RegisteredModel:
    """The provider of connectors, asked for one of them as the catalog asks it."""

    def __init__(self, url: str) -> None:
        self._provider = ConnectorChat(CONNECTORS, Settings(connectors=TRUST))
        self.name, self.capabilities = self._provider.name, self._provider.capabilities
        action = Action(
            action_type="PREDICT",
            method="POST",
            url=f"{url}/v1/chat/completions",
            headers={"Authorization": "Bearer ${credential.key}"},
            request_body='{"model": "${parameters.model}", "messages": ${parameters.messages}}',
        )
        self._connector = Connector(
            name="c",
            version="1",
            protocol="http",
            parameters={"model": "m"},
            credential={"key": CANARY},
            actions=(action,),
        )

    def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | Finished, None]:
        return self._provider.stream(replace(request, options={CONNECTOR: self._connector}))

    async def aclose(self) -> None:
        await self._provider.aclose()


@asynccontextmanager
async def start(scenario: Scenario) -> AsyncIterator[Running]:
    async with ByteServer({}) as server:
        server.routes.update(routes(scenario, server.url))
        provider = RegisteredModel(server.url)

        try:
            yield running(provider, server)
        finally:
            await provider.aclose()


ENTRY = ProviderEntry(
    "connector",
    start,
    able=frozenset({"reasoning", "tools"}),
    reasons=frozenset({FinishReason.STOP, FinishReason.LENGTH, FinishReason.CONTENT_FILTER}),
    # The key is the caller's own, so every status is the remote service's answer to the caller.
    statuses={status: status for status in STATUSES},
)
