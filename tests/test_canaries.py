"""The search for keys in the logs of a test run finds them, so its silence means something."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from tests.canaries import SEARCH, Search
from tests.running import ROOT, Service

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


def test_a_key_in_a_stored_file_is_found(tmp_path: Path) -> None:
    status, said = _run(tmp_path, "def test_stores(tmp_path): (tmp_path / 'a.db').write_bytes(b'\\0sk-canary-4')")
    assert (status, "a.db: b'\\x00sk-canary-4'" in said) == (1, True)


def test_a_key_in_a_services_answer_is_found_and_in_anybody_elses_not() -> None:
    search = Search()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        search.hear(client, b"sk-canary-7")
        assert search.found == []
        search.ports.add(server.getsockname()[1])
        search.hear(client, b'{"error": "sk-canary-7"}')
    assert search.found == ['an answer of a service: b\'{"error": "sk-canary-7"}\'']


async def test_every_answer_of_a_service_is_searched(service: Service) -> None:
    before = SEARCH.answers
    async with aiohttp.ClientSession() as session, session.get(f"{service.url}/nowhere") as answer:
        assert answer.status == 404
    service.get("/readyz")
    assert SEARCH.answers >= before + 2
    assert service.port in SEARCH.ports


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
