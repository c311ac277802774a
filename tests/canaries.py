"""No key leaves: every key of the tests begins with `sk-canary`, and whatever a run writes down or hears is searched.

Log records and outputs of the tests' processes; logs, metrics, descriptions and stored files of every service; every
answer that a client of these tests had from a service, errors above all. What a test finds fails it; what a service
leaves fails whoever used it; both make the whole run fail, and its last lines tell what was searched.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

CANARY = "sk-canary"
MARK = CANARY.encode()
WRITTEN_BY_TESTS = (".py", ".pyc", "child.json")
"""The last is how a child of the embedded model tells the workers of its user its key."""


@dataclass
class Search:
    """What was searched so far, and what was found. `ports` are those of the services."""

    records: int = 0
    texts: int = 0
    files: int = 0
    answers: int = 0
    found: list[str] = field(default_factory=list)
    ports: set[int] = field(default_factory=set)

    def read(self, text: str, where: str) -> None:
        """Search `text`."""
        self.texts += 1
        for line in text.splitlines():
            if CANARY in line:
                self.found.append(f"{where}: {line.strip()[:300]}")

    def read_folder(self, folder: Path) -> None:
        """Search every file below `folder`: stores, their journals, logs."""
        for parent, _, names in os.walk(folder):
            for path in (Path(parent, name) for name in names if not name.endswith(WRITTEN_BY_TESTS)):
                if path.is_file() and not path.is_symlink():
                    self.files += 1
                    self.read_file(path)

    def read_file(self, path: Path) -> None:
        data = path.read_bytes()
        if (place := data.find(MARK)) >= 0:
            self.found.append(f"{path}: {data[max(0, place - 40) : place + 40]!r}")

    def hear(self, source: socket.socket, data: bytes | memoryview) -> None:
        """Search what came out of `source`, where that leads to a service."""
        self.answers += 1
        if MARK in bytes(data) and source.getpeername()[1] in self.ports:
            self.found.append(f"an answer of a service: {bytes(data)[:300]!r}")

    def add(self, searched: dict[str, Any]) -> None:
        """What another process searched."""
        for name in ("records", "texts", "files", "answers"):
            setattr(self, name, getattr(self, name) + searched[name])
        self.found += searched["found"]


SEARCH = Search()


class _Records(logging.Handler):
    """Searches every record as it would be printed, traceback included."""

    def emit(self, record: logging.LogRecord) -> None:
        SEARCH.records += 1
        try:
            text = self.format(record)
        except Exception:
            return
        if CANARY in text:
            SEARCH.read(text, f"a record of {record.name!r}")


def _listen() -> None:
    """Stand before the two methods by which Python's clients read from a plain socket."""
    recv, recv_into = socket.socket.recv, socket.socket.recv_into

    def searched(self: socket.socket, *how: Any) -> bytes:
        data = recv(self, *how)
        SEARCH.hear(self, data)
        return data

    def searched_into(self: socket.socket, buffer: Any, *how: Any) -> int:
        size = recv_into(self, buffer, *how)
        SEARCH.hear(self, memoryview(buffer)[:size])
        return size

    socket.socket.recv = searched  # type: ignore[method-assign,assignment]
    socket.socket.recv_into = searched_into  # type: ignore[method-assign,assignment]


def pytest_configure(config: pytest.Config) -> None:
    logging.getLogger().addHandler(_Records())
    _listen()


@pytest.fixture(autouse=True)
def no_key_is_shown() -> Iterator[None]:
    """A test that hears a key, or whose process logs one, fails."""
    before = len(SEARCH.found)
    yield
    if found := SEARCH.found[before:]:
        pytest.fail("A key was shown:\n" + "\n".join(found))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    SEARCH.read(report.capstdout + report.capstderr, f"the output of {report.nodeid}")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """An xdist worker has ended."""
    if "canaries" in getattr(node, "workeroutput", {}):
        SEARCH.add(node.workeroutput["canaries"])


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    folder = getattr(session.config, "_tmp_path_factory", None)
    if folder is not None and folder._basetemp is not None:
        SEARCH.read_folder(folder.getbasetemp())
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["canaries"] = asdict(SEARCH) | {"ports": []}
    elif SEARCH.found:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.write_line(
        f"keys: {SEARCH.records} log records, {SEARCH.texts} outputs, logs, metrics and descriptions, "
        f"{SEARCH.files} stored files and {SEARCH.answers} pieces from sockets searched, {len(SEARCH.found)} with a key"
    )
    for found in SEARCH.found:
        terminalreporter.write_line(f"  {found}")
