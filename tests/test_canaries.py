"""The search for keys in the logs of a test run finds them, so its silence means something."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.canaries import Search
from tests.running import ROOT

LEAKS = """
import logging

def test_record():
    logging.getLogger("polywire").warning("key %s", "sk-canary-1")

def test_traceback():
    try:
        raise ValueError("sk-canary-2")
    except ValueError:
        logging.getLogger("polywire").exception("it broke")

def test_output():
    print("sk-canary-3")

def test_silent():
    logging.getLogger("polywire").warning("no key")
"""


@pytest.mark.parametrize("options", [(), ("-p", "xdist", "-n", "1")], ids=["one process", "xdist"])
def test_a_run_that_shows_a_key_fails_and_tells_where(tmp_path: Path, options: tuple[str, ...]) -> None:
    status, said = _run(tmp_path, LEAKS, *options)
    assert status == 1
    for place in ("record of 'polywire': key sk-canary-1", "Error: sk-canary-2", "sk-canary-3"):
        assert place in said
    assert "test_silent" not in said


def test_a_run_that_shows_none_passes(tmp_path: Path) -> None:
    status, said = _run(tmp_path, "import logging\n\ndef test_well(): logging.warning('no key')")
    assert (status, "1 log records" in said, ", 0 with a key" in said) == (0, True, True)


def test_a_key_in_a_services_log_is_found() -> None:
    search = Search()
    search.read('{"level": "info"}\nsk-canary-9 was refused\n', "service.log")
    assert search.found == ["service.log: sk-canary-9 was refused"]


def _run(folder: Path, test: str, *options: str) -> tuple[int, str]:
    """The exit status of a run of `test` alone, and what it prints."""
    (folder / "test_it.py").write_text(test)
    (folder / "conftest.py").write_text("from tests.canaries import *\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", str(folder), *options, str(folder)],
        cwd=ROOT,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr
