"""The official SDK's clients, pointed at the running service and never retrying."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import openai
import pytest

from tests.conftest import scripted_config
from tests.running import Service, running


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Two workers behind two keys; pages of one origin may call, and no silence is longer than 300 ms."""
    keys = {"POLYWIRE_API_KEYS": "sk-canary-first,sk-canary-second"}
    config = scripted_config(origins=["https://app.example"], limits={"keepalive_seconds": 0.3})
    with running(tmp_path_factory.mktemp("guarded"), config, environment=keys, workers=2) as started:
        started.headers = {"authorization": "Bearer sk-canary-first"}
        yield started


@pytest.fixture
def client(service: Service) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{service.url}/v1", api_key="unused", max_retries=0) as made:
        yield made


@pytest.fixture
async def async_client(service: Service) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{service.url}/v1", api_key="unused", max_retries=0) as made:
        yield made
