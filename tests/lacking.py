"""What a test needs and does not find here: the test is left out, and in CI, which installs everything, it fails."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def lacking(what: str) -> NoReturn:
    """End the test; `what` says how to get it."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)
