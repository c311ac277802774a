"""Two services on one Redis behind nginx, as a deployment has them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.nginx import nginx
from tests.redis_server import RedisServer, redis_server
from tests.running import Service, running

PIECES = 60
TEXT = "".join(f"{number} " for number in range(PIECES))
STORE_KEY = "sk-canary-replicas"


@dataclass
class Replicas:
    """`url` is nginx's; `services` are what is behind it."""

    url: str
    services: list[Service]
    redis: RedisServer


def counting(pause: float) -> list[dict[str, Any]]:
    """A script that says TEXT, one number after the other."""
    steps: list[dict[str, Any]] = []
    for number in range(PIECES):
        steps += [{"text": f"{number} "}, {"delay": pause}]
    return [*steps, {"finish": "stop"}]


@contextmanager
def replicas(folder: Path) -> Iterator[Replicas]:
    """Two replicas of one worker each, with the models `test/count` (6 s), `test/brief` and `test/hangs`."""
    script = folder / "script.yaml"
    steps = {"count": counting(0.1), "brief": counting(0.005), "hangs": [{"text": "Begun"}, {"silence": True}]}
    script.write_text(yaml.safe_dump(steps))
    config = {
        "providers": [{"name": "script", "type": "scripted", "path": str(script)}],
        "models": [{"id": f"test/{name}", "provider": "script", "upstream": name} for name in steps],
        "limits": {"keepalive_seconds": 0.5},
        "connectors": {"trusted_endpoints": [r"^http://127\.0\.0\.1:\d+/.*$"]},
        "replicas": 2,
    }
    with ExitStack() as stack:
        redis = stack.enter_context(redis_server(folder / "redis", persistent=True, password="sk-canary-redis"))
        environment = {"POLYWIRE_STORE": redis.url, "POLYWIRE_STORE_KEY": STORE_KEY}

        def start(name: str) -> Service:
            (folder / name).mkdir()
            return stack.enter_context(running(folder / name, config, environment=environment))

        with ThreadPoolExecutor(2) as pool:
            services = list(pool.map(start, ("one", "two")))
        url = stack.enter_context(nginx(folder / "nginx", [service.port for service in services]))
        yield Replicas(url, services, redis)


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    """Replicas for tests that leave them as they were."""
    with replicas(tmp_path_factory.mktemp("replicas")) as started:
        yield started
