"""The `local` chat provider in the contract suite: its child process is played by the byte server.

The fake publishes its address and holds its locks as the child does, so the provider takes it for one that it shares.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from adapters.local_chat import LocalChat
from adapters.local_child import child_settings
from gateway.config import LocalSettings, ProviderRow, Settings
from tests.contract.entry import CANARY, ProviderEntry, Running, running
from tests.contract.openai_entry import routes
from tests.contract.scenario import Scenario
from tests.local_fixtures import temporary_folder
from tests.upstreams.byte_server import ByteServer


@asynccontextmanager
async def _start(scenario: Scenario) -> AsyncIterator[Running]:
    row = ProviderRow(name="local", type="local")
    async with ByteServer(routes(scenario, "")) as server:
        with (
            tempfile.TemporaryDirectory() as name,
            temporary_folder(Path(name)) as folder,
            pytest.MonkeyPatch.context() as patch,
        ):
            # A child that breaks off lives on here, so its death is not waited for.
            patch.setattr("adapters.local_chat.DEATH_SECONDS", 0)
            weights = folder / "model.gguf"
            weights.write_bytes(b"GGUF")
            settings = Settings(local=LocalSettings(gguf=weights))
            with living_child(folder, settings.local, server.url):
                provider = LocalChat(row, settings)
                try:
                    yield running(provider, server)
                finally:
                    await provider.aclose()


@contextmanager
def living_child(folder: Path, settings: LocalSettings, url: str) -> Iterator[None]:
    """What a living child leaves in its folder."""
    place = folder / f"polywire-{os.getuid()}" / child_settings(settings).folder_name
    place.mkdir(mode=0o700, parents=True)
    place.parent.chmod(0o700)
    address = place / "child.json"
    address.write_text(json.dumps({"base_url": f"{url}/v1", "pid": os.getpid(), "key": CANARY}))
    with (place / "alive").open("w") as alive, address.open("r+") as published:
        fcntl.flock(alive, fcntl.LOCK_EX)
        fcntl.flock(published, fcntl.LOCK_EX)
        yield


ENTRY = ProviderEntry("local", _start, able=frozenset({"reasoning", "http"}))
