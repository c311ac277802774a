"""The official JavaScript clients, installed by the lock file of tests/js, one verb of a client at a time."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

from tests.lacking import lacking
from tests.running import ROOT

FOLDER = ROOT / "tests" / "js"


def install() -> None:
    """Install what the lock file says, unless it is there; skips where there is no npm."""
    if shutil.which("npm") is None:
        lacking("npm is not installed; install Node.js 20 or newer")
    wanted, marker = FOLDER / "package-lock.json", FOLDER / "node_modules" / ".package-lock.json"
    with wanted.open() as lock:
        # Test processes that run side by side would install over each other.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not marker.exists() or marker.stat().st_mtime < wanted.stat().st_mtime:
            command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
            subprocess.run(command, cwd=FOLDER, check=True, capture_output=True)


def run_node(script: str, *arguments: str, stdin: bytes = b"", environment: Mapping[str, str] | None = None) -> Any:
    """What `script` prints, as JSON."""
    done = subprocess.run(
        ["node", script, *arguments],
        cwd=FOLDER,
        input=stdin,
        capture_output=True,
        timeout=30,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)
