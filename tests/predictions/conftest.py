"""A gateway with given scripts, and the running service with two workers and the models of data/predictions.yaml."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapters.scripted import ScriptedChat, Steps
from gateway.catalog import Gateway
from gateway.config import Kind, Limits, ModelRow, ProviderRow, Settings
from gateway.ports import Provider
from gateway.predictions import Predictions
from stores import open_store
from tests.predictions.caller import Caller
from tests.redis_server import RedisServer
from tests.running import ROOT, Service, running

SCRIPT = ROOT / "tests" / "data" / "predictions.yaml"
KEY, OTHER_KEY = "sk-canary-test", "sk-canary-other"


class Worker:
    """One worker's predictions over a store that others may share, and a gateway whose models play `scripts`."""

    def __init__(self, url: str, scripts: Mapping[str, Steps], **limits: Any) -> None:
        row = ProviderRow(name="script", type="scripted", retries=0)
        models = tuple(ModelRow(id=name, provider="script", upstream=name) for name in scripts)
        settings = Settings(providers=(row,), models=models, limits=Limits(**limits))
        self.provider = ScriptedChat(row, settings, dict(scripts))
        self.gateway = Gateway(settings, self._build)
        self.store = open_store(url)
        self.predictions = Predictions(self.store, settings.limits)

    def _build(self, row: ProviderRow, kind: Kind, settings: Settings) -> Provider:
        return self.provider


async def eventually(holds: Callable[[], Awaitable[object]]) -> None:
    """Wait until what no event tells of holds."""
    async with asyncio.timeout(10):
        while not await holds():  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.01)


OpenWorker = Callable[..., Any]


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'polywire.db'}"
    server: RedisServer = request.getfixturevalue("redis")
    server.command("FLUSHALL")
    return server.url


@pytest.fixture
async def workers(url: str) -> AsyncIterator[OpenWorker]:
    """Opens one more worker on the same store: `await workers(scripts, **limits)`."""
    async with AsyncExitStack() as stack:

        async def open_worker(scripts: Mapping[str, Steps], **limits: Any) -> Worker:
            worker = Worker(url, scripts, **limits)
            stack.push_async_callback(worker.store.aclose)
            await stack.enter_async_context(worker.predictions.serving())
            return worker

        yield open_worker


def cluster_config() -> dict[str, Any]:
    """Every script as a model of two name parts, and a voice."""
    names = yaml.safe_load(SCRIPT.read_text(encoding="utf-8"))
    models: list[dict[str, Any]] = [{"id": f"test/{name}", "provider": "script", "upstream": name} for name in names]
    models += [
        {"id": "default", "provider": "script", "upstream": "story"},
        {"id": "test/echo", "provider": "script", "upstream": "echo"},
        {"id": "test/voice", "provider": "script", "upstream": "tone", "kind": "speech"},
    ]
    return {
        "providers": [{"name": "script", "type": "scripted", "path": str(SCRIPT)}],
        "models": models,
        "limits": {"keepalive_seconds": 0.5},
        "webhooks": {"trusted_endpoints": [r"^http://127\.0\.0\.1:\d+/.*$"], "allow_loopback": True},
    }


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The service with two workers and two keys; `headers` carry the first."""
    environment = {"POLYWIRE_API_KEYS": f"{KEY},{OTHER_KEY}"}
    with running(tmp_path_factory.mktemp("cluster"), cluster_config(), workers=2, environment=environment) as service:
        service.headers["authorization"] = f"Bearer {KEY}"
        yield service


@pytest.fixture
def caller(cluster: Service) -> Caller:
    return Caller(cluster)
