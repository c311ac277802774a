"""No key in any log: every key of the tests begins with `sk-canary`, and what is logged in a run is searched for it.

What a test's own process logs fails that test; what a service of `tests/running.py` logs fails whoever used it; both
make the whole run fail, and its last lines tell what was searched.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

CANARY = "sk-canary"


@dataclass
class Search:
    """What was searched so far, and what was found."""

    records: int = 0
    texts: int = 0
    found: list[str] = field(default_factory=list)

    def read(self, text: str, where: str) -> None:
        """Search `text`."""
        self.texts += 1
        for line in text.splitlines():
            if CANARY in line:
                self.found.append(f"{where}: {line.strip()[:300]}")

    def add(self, searched: dict[str, Any]) -> None:
        """What another process searched."""
        self.records += searched["records"]
        self.texts += searched["texts"]
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


def pytest_configure(config: pytest.Config) -> None:
    logging.getLogger().addHandler(_Records())


@pytest.fixture(autouse=True)
def no_key_is_logged() -> Iterator[None]:
    """A test whose process logs a key fails."""
    before = len(SEARCH.found)
    yield
    if found := SEARCH.found[before:]:
        pytest.fail("A key was logged:\n" + "\n".join(found))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    SEARCH.read(report.capstdout + report.capstderr, f"the output of {report.nodeid}")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """An xdist worker has ended."""
    SEARCH.add(getattr(node, "workeroutput", {}).get("canaries", {"records": 0, "texts": 0, "found": []}))


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["canaries"] = {"records": SEARCH.records, "texts": SEARCH.texts, "found": SEARCH.found}
    elif SEARCH.found:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.write_line(
        f"keys: {SEARCH.records} log records and {SEARCH.texts} outputs and service logs searched, "
        f"{len(SEARCH.found)} with a key"
    )
    for found in SEARCH.found:
        terminalreporter.write_line(f"  {found}")
