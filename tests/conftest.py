"""Fixtures that many tests share: the running service with scripted providers, and a refusal of foreign sockets."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.canaries import (
    no_key_is_shown,
    pytest_configure,
    pytest_runtest_logreport,
    pytest_sessionfinish,
    pytest_terminal_summary,
    pytest_testnodedown,
)
from tests.redis_server import RedisServer, redis_server
from tests.running import ROOT, Service, running

__all__ = [
    "no_key_is_shown",
    "pytest_configure",
    "pytest_runtest_logreport",
    "pytest_sessionfinish",
    "pytest_terminal_summary",
    "pytest_testnodedown",
]

# CI shows whether a change broke something; new examples are looked for everywhere else.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

SCRIPTS = ("hello", "reasoning", "tools", "empty", "length", "fails-first", "fails-midway", "faults", "truncated")
WAITING = ("silent", "hangs-midway", "slow", "flood")


def scripted_config(**extra: Any) -> dict[str, Any]:
    """A polywire.yaml whose models are the scripts of tests/data/script.yaml, an echo and a humming voice."""
    models = [{"id": name, "provider": "script", "upstream": name} for name in (*SCRIPTS, *WAITING)]
    models += [{"id": f"test/{name}", "provider": "script", "upstream": name} for name in (*SCRIPTS, "pieces")]
    models += [
        {"id": "pieces", "provider": "script", "upstream": "pieces"},
        {"id": "default", "provider": "script", "upstream": "hello"},
        {"id": "polywire/chat", "provider": "script", "upstream": "hello"},
        {"id": "tgi", "provider": "script", "upstream": "hello"},
        {"id": "echo", "provider": "script", "upstream": "echo"},
        {"id": "conversation", "provider": "script", "upstream": "conversation"},
        {"id": "test/echo", "provider": "script", "upstream": "echo"},
        {"id": "voice", "provider": "script", "upstream": "tone", "kind": "speech"},
        {"id": "voice-fails-first", "provider": "script", "upstream": "fails-first", "kind": "speech"},
        {"id": "voice-fails-midway", "provider": "script", "upstream": "speaks-then-fails", "kind": "speech"},
        {"id": "voice-floods", "provider": "script", "upstream": "flood", "kind": "speech"},
        {"id": "voice-hangs", "provider": "script", "upstream": "hangs-midway", "kind": "speech"},
        {"id": "transcriber-fails-midway", "provider": "script", "upstream": "fails-midway", "kind": "transcription"},
        {"id": "transcriber", "provider": "script", "upstream": "hello", "kind": "transcription"},
    ]
    provider = {"name": "script", "type": "scripted", "path": str(ROOT / "tests" / "data" / "script.yaml")}
    return {"providers": [provider], "models": models, **extra}


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The service with scripted providers, shared by all tests that only talk to it."""
    with running(tmp_path_factory.mktemp("service"), scripted_config(), grpc=True) as started:
        yield started


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis for all tests that leave it running; each begins by emptying it."""
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
async def no_task_is_left() -> AsyncIterator[None]:
    """The test ends every task that it began."""
    before = asyncio.all_tasks()
    yield
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    assert not left


@pytest.fixture(params=["few", "crowd"])
def few_or_a_crowd(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams are read by the event loop, or as if there were very many (adapters/crowd.py)."""
    if request.param == "crowd":
        monkeypatch.setattr("adapters.crowd.CROWD", 1)


@pytest.fixture(autouse=True)
def _loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test may reach beyond this machine."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        host = address[0] if isinstance(address, tuple) else "localhost"
        if self.family in (socket.AF_INET, socket.AF_INET6) and not _is_local(str(host)):
            raise OSError(f"a test tried to reach {host}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)


def _is_local(host: str) -> bool:
    return host in ("localhost", "::1", "0.0.0.0") or host.startswith(("127.", "::ffff:127."))  # noqa: S104 - compared


def data(name: str) -> Path:
    """A file of tests/data."""
    return ROOT / "tests" / "data" / name
