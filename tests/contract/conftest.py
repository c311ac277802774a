"""The secrets of every row in the contract suite."""

from __future__ import annotations

import pytest

from tests.aws.conftest import account
from tests.contract.entry import CANARY, CANARY_ENV

__all__ = ["account"]


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch, account: None) -> None:
    monkeypatch.setenv(CANARY_ENV, CANARY)
    monkeypatch.setenv("CONTRACT_USER", "polywire")
    # What AWS quotes of a caller, in this suite.
    monkeypatch.setenv("AWS_SESSION_TOKEN", CANARY)
