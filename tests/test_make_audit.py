"""`make audit`: what is found fails, what could not be looked up is announced and fails nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.running import ROOT

WRITE = 'while [ "$1" != --output ]; do shift; done; echo "aiohttp 1.0 CVE-1" > "$2"; exit 1'


@pytest.mark.parametrize(
    ("does", "status", "says"),
    [
        ("exit 0", 0, "No known vulnerability"),
        (WRITE, 1, "aiohttp 1.0 CVE-1"),
        ("echo 'ERROR: no network' >&2; exit 1", 0, "NOT AUDITED"),
    ],
)
def test_only_what_was_found_fails(tmp_path: Path, does: str, status: int, says: str) -> None:
    tool = tmp_path / "pip-audit"
    tool.write_text(f"#!/bin/sh\n{does}\n")
    tool.chmod(0o755)
    done = subprocess.run(["deploy/audit.sh", str(tool)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, says in done.stdout) == (status, True)
