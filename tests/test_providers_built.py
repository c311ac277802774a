"""Providers are built off the event loop: at the start for all that is configured, else with their first request."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from adapters import build
from adapters.scripted import ScriptedChat
from gateway.catalog import Gateway
from gateway.config import Kind, ModelRow, ProviderRow, Settings
from gateway.errors import GatewayError, InternalError, UpstreamError
from gateway.ports import Provider
from gateway.providers import Providers
from tests.running import ROOT

ROW = ProviderRow(name="slow", type="scripted")


class SlowImport:
    """Builds as an SDK of a second or more does: it blocks its thread until the event loop lets it go on."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Event()
        self.builds = 0

    def __call__(self, row: ProviderRow, kind: Kind, settings: Settings) -> Provider:
        self.builds += 1
        self.begun.release()
        assert self.go_on.wait(5), "the event loop was held up"
        return ScriptedChat(row, settings, {})


async def test_the_loop_goes_on_while_a_provider_is_built_once_for_all_who_ask() -> None:
    slow = SlowImport()
    providers = Providers(Settings(), slow)
    asking = [asyncio.create_task(providers.get(ROW, "chat")) for _ in range(3)]
    await asyncio.to_thread(slow.begun.acquire)
    # This line runs on the event loop while the builder blocks its thread.
    slow.go_on.set()
    built = await asyncio.gather(*asking)
    assert slow.builds == 1
    assert built == [await providers.get(ROW, "chat")] * 3
    await providers.aclose()


async def test_who_leaves_while_a_provider_is_built_takes_it_from_nobody() -> None:
    slow = SlowImport()
    providers = Providers(Settings(), slow)
    leaving, staying = (asyncio.create_task(providers.get(ROW, "chat")) for _ in range(2))
    await asyncio.to_thread(slow.begun.acquire)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    slow.go_on.set()
    assert (await staying).name == "slow"
    assert slow.builds == 1
    await providers.aclose()


async def test_closing_waits_for_a_provider_that_is_being_built() -> None:
    slow = SlowImport()
    providers = Providers(Settings(), slow)
    asking = asyncio.create_task(providers.get(ROW, "chat"))
    await asyncio.to_thread(slow.begun.acquire)
    asking.cancel()
    with suppress(asyncio.CancelledError):
        await asking
    slow.go_on.set()
    await providers.aclose()
    assert len(asyncio.all_tasks()) == 1


async def test_a_build_that_failed_is_tried_again() -> None:
    answers: list[Exception | None] = [InternalError("no package"), None]

    def sometimes(row: ProviderRow, kind: Kind, settings: Settings) -> Provider:
        if answer := answers.pop(0):
            raise answer
        return ScriptedChat(row, settings, {})

    providers = Providers(Settings(), sometimes)
    with pytest.raises(InternalError):
        await providers.get(ROW, "chat")
    assert await providers.get(ROW, "chat")
    await providers.aclose()


async def test_the_start_builds_what_is_configured_and_says_in_a_line_what_it_cannot(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = (
        ProviderRow(name="keyless", type="openai", api_key_env="NO_SUCH_KEY"),
        ProviderRow(name="cloud", type="bedrock", region="us-east-1"),
        ProviderRow(name="unused", type="openai", api_key_env="NO_SUCH_KEY"),
        ProviderRow(name="wrong", type="polly"),
    )
    models = (
        ModelRow(id="a", provider="keyless", upstream="m"),
        ModelRow(id="b", provider="keyless", upstream="n"),
        ModelRow(id="c", provider="cloud", upstream="m"),
        ModelRow(id="d", provider="wrong", upstream="m", kind="chat"),
    )
    threads: dict[tuple[str, str], int] = {}

    def noted(row: ProviderRow, kind: Kind, settings: Settings) -> Provider:
        threads[row.name, kind] = threading.get_ident()
        return build(row, kind, settings)

    gateway = Gateway(Settings(providers=rows, models=models), noted)
    with caplog.at_level(logging.WARNING, "polywire"):
        await gateway.warm()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert "NO_SUCH_KEY" in lines[0]
    assert "'wrong'" in lines[1]
    assert list(threads) == [("keyless", "chat"), ("cloud", "chat"), ("wrong", "chat")]
    assert threading.get_ident() not in threads.values()
    await gateway.aclose()


async def test_a_missing_package_is_told_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name="vendor_sdk")

    monkeypatch.setattr("adapters.import_module", missing)
    providers = Providers(Settings(), build)
    with pytest.raises(GatewayError, match="vendor_sdk") as raised:
        await providers.get(ProviderRow(name="cloud", type="bedrock"), "chat")
    assert not isinstance(raised.value, UpstreamError)


def test_the_embedded_voice_tells_nobody_that_it_runs(tmp_path: Path) -> None:
    """onnxruntime keeps an id of the machine and a queue of events for its maker, unless it is told not to."""
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    environment.pop("ORT_DISABLE_TELEMETRY", None)
    command = [sys.executable, "-c", "import adapters.local_speech, onnxruntime"]
    subprocess.run(command, env=environment, cwd=ROOT, check=True)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == []
