"""The key of every row in the contract suite."""

from __future__ import annotations

import pytest

from tests.contract.entry import CANARY, CANARY_ENV


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CANARY_ENV, CANARY)
