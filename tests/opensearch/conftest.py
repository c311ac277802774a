"""The running service that trusts loopback services, which stand for OpenAI and Bedrock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from tests.conftest import scripted_config
from tests.opensearch.cluster import Cluster
from tests.running import Service, running

LOOPBACK = r"^http://127\.0\.0\.1:\d+/.*$"
OPENAI = r"^https://api\.openai\.com/.*$"


@pytest.fixture(scope="session")
def ml_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    config = scripted_config(connectors={"trusted_endpoints": [LOOPBACK, OPENAI]}, limits={"send_stall_seconds": 2})
    with running(tmp_path_factory.mktemp("ml"), config, grpc=True) as started:
        yield started


@pytest.fixture
async def cluster(ml_service: Service) -> AsyncIterator[Cluster]:
    async with httpx.AsyncClient(base_url=ml_service.url, timeout=20) as client:
        yield Cluster(ml_service, client)
