"""The official JavaScript clients of tests/js, as its lock file names them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

import pytest

from tests.running import ROOT

FOLDER = ROOT / "tests" / "js"


def install() -> None:
    """Install the packages unless they are there. Skips the test where there is no npm."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed; install Node.js 18 or newer")
    wanted, marker = FOLDER / "package-lock.json", FOLDER / "node_modules" / ".package-lock.json"
    if not marker.exists() or marker.stat().st_mtime < wanted.stat().st_mtime:
        subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=FOLDER, check=True, capture_output=True)


def run(program: str, *arguments: str, stdin: bytes = b"", environment: Mapping[str, str] | None = None) -> Any:
    """What a program of tests/js printed, as JSON."""
    done = subprocess.run(
        ["node", program, *arguments],
        cwd=FOLDER,
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return json.loads(done.stdout)
