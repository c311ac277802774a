"""The service that the crowds come to, with its upstream in a process of its own."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from tests.faults.peers import Upstream, fake_upstream, in_front_of
from tests.running import Service


@pytest.fixture(scope="session")
def upstream() -> Iterator[Upstream]:
    """With as many files as the system allows, like everything that is started here."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with fake_upstream() as started:
        yield started
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(scope="session")
def crowded(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Whose heads and bodies are waited for a little longer than the tests take."""
    with in_front_of(upstream, tmp_path_factory.mktemp("crowded"), header_seconds=90, body_stall_seconds=90) as service:
        yield service
