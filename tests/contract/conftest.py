"""The secrets of every row in the contract suite, and the same store opened as often as a test wants."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from gateway.ports import Store
from stores import open_store
from tests.aws.conftest import account
from tests.contract.entry import CANARY, CANARY_ENV
from tests.redis_server import RedisServer

__all__ = ["account"]

OpenStore = Callable[[], Awaitable[Store]]


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'state' / 'polywire.db'}"
    server: RedisServer = request.getfixturevalue("redis")
    server.command("FLUSHALL")
    return server.url


@pytest.fixture
async def another(url: str) -> AsyncIterator[OpenStore]:
    """Opens the same store once more, as another worker would."""
    async with AsyncExitStack() as stack:

        async def open_another() -> Store:
            store = open_store(url)
            stack.push_async_callback(store.aclose)
            return store

        yield open_another


@pytest.fixture
async def store(another: OpenStore) -> Store:
    return await another()


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch, account: None) -> None:
    monkeypatch.setenv(CANARY_ENV, CANARY)
    monkeypatch.setenv("CONTRACT_USER", "polywire")
    # What AWS quotes of a caller, in this suite.
    monkeypatch.setenv("AWS_SESSION_TOKEN", CANARY)
