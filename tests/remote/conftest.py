"""Secrets for every test of the remote providers, and one genuine Cog server for those that want it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.remote.upstreams import KEY
from tests.upstreams.cog_server import cog_server


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMOTE_USER_NAME", "polywire")
    monkeypatch.setenv("REMOTE_KEY", KEY)


@pytest.fixture(scope="session")
def cog_url() -> Iterator[str]:
    with cog_server() as url:
        yield url
