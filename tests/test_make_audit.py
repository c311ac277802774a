"""`make audit`: what is found fails, what could not be looked up is announced and fails nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.running import ROOT

CLEAN = {"name": "aiohttp", "version": "1.0", "vulns": []}
BAD = {**CLEAN, "vulns": [{"id": "CVE-1", "fix_versions": ["2.0"]}]}
UNKNOWN = {"name": "hibari-tts", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("packages", "status", "says"),
    [
        ([CLEAN], 0, ["0 known vulnerabilities in the 1 packages"]),
        ([CLEAN, BAD], 1, ["aiohttp 1.0: CVE-1, fixed in 2.0", "1 known"]),
        ([CLEAN, UNKNOWN], 0, ["NOT AUDITED: 1 of 2", "in the 1 packages"]),
        (None, 0, ["NOT AUDITED"]),
    ],
)
def test_only_what_was_found_fails(tmp_path: Path, packages: list[Any] | None, status: int, says: list[str]) -> None:
    tool = tmp_path / "pip-audit"
    answer = "" if packages is None else json.dumps({"dependencies": packages})
    tool.write_text(f"#!/bin/sh\necho '{answer}'\nexit 1\n")
    tool.chmod(0o755)
    command = [sys.executable, "deploy/audit.py", str(tool)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert all(sentence in done.stdout for sentence in says)
