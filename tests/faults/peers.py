"""Starts the fake upstream and the crowds of these tests, each in its process, and asks them what they saw."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from tests.running import ROOT, Service, running

KEY_ENV = "CROWD_KEY"
MODELS = ("paced-100", "paced-20", "flood-16000", "flood-32000000", "flood-8000000", "line", "deep", "bomb")
START_SECONDS = 60.0
STREAM_LIMIT = 2**20


class Come:
    """A crowd that is there."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def leave(self) -> dict[str, Any]:
        """Have it leave, and tell what it saw."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"leave\n")
        told: dict[str, Any] = json.loads(await self._process.stdout.readline())
        return told


@asynccontextmanager
async def crowd(service: Service, kind: str, count: int, asked: Any = None) -> AsyncIterator[Come]:
    """So many clients of a kind, once all of them are there; its process ends with the block."""
    command = [sys.executable, "-m", "tests.faults.crowd", kind, str(service.port), str(count)]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=PIPE, stdout=PIPE, limit=STREAM_LIMIT)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(asked).encode() + b"\n")
        async with asyncio.timeout(START_SECONDS):
            assert await process.stdout.readline() == b"ready\n"
        yield Come(process)
    finally:
        process.stdin.close()
        if process.returncode is None:
            process.kill()
        await process.wait()


@dataclass(frozen=True, slots=True)
class Upstream:
    """The fake's address."""

    url: str

    def report(self) -> dict[str, Any]:
        """How many streams were asked for, how many are open, and when the last was left."""
        with urlopen(f"{self.url}/report", timeout=10) as answer:  # noqa: S310 - loopback
            told: dict[str, Any] = json.loads(answer.read())
            return told


@contextmanager
def fake_upstream() -> Iterator[Upstream]:
    command = [sys.executable, "-m", "tests.faults.crowd_upstream"]
    with subprocess.Popen(command, cwd=ROOT, stdin=PIPE, stdout=PIPE) as process:
        assert process.stdout is not None
        try:
            yield Upstream(f"http://127.0.0.1:{int(process.stdout.readline())}")
        finally:
            process.kill()


@contextmanager
def in_front_of(
    upstream: Upstream,
    folder: Path,
    *,
    row: Mapping[str, Any] | None = None,
    model: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    **limits: Any,
) -> Iterator[Service]:
    """The service with the fake as the provider of every model, and of a voice that says a lot.

    `row` and `model` are another provider and its model, with their `environment`.
    """
    provider = {"name": "fake", "type": "openai", "base_url": f"{upstream.url}/v1", "api_key_env": KEY_ENV}
    rows = [
        {"id": prefix + model, "provider": "fake", "upstream": model} for model in MODELS for prefix in ("", "test/")
    ]
    rows += [{"id": "voice", "provider": "fake", "upstream": "flood-32000000", "kind": "speech"}]
    config = {
        "providers": [provider | {"connections": 3000}, *filter(None, [row])],
        "models": [*rows, *filter(None, [model]), {"id": "default", "provider": "fake", "upstream": "flood-16000"}],
        "limits": {"streams": 3000, **limits},
    }
    variables = {KEY_ENV: "sk-canary-crowd", **(environment or {})}
    with running(folder, config, environment=variables, grpc=True, target="tests.faults.counted:Polywire") as service:
        yield service
