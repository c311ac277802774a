"""docs/mission.md keeps its word: every row is there, and every test that it names exists."""

from __future__ import annotations

import re

from tests.running import ROOT

ROW = re.compile(r"\| (?P<number>\d+)(?: \*\*D\*\*)? \| (?P<what>.+) \| (?P<proof>.+) \|")
TEST = re.compile(r"`(?P<file>[\w/]+\.py)::(?P<name>test_\w+)`")
ROWS = [found for line in (ROOT / "docs" / "mission.md").read_text("utf-8").splitlines() if (found := ROW.match(line))]


def test_no_row_is_left_out() -> None:
    assert [int(row["number"]) for row in ROWS] == list(range(1, 109))


def test_every_row_names_tests_that_exist_or_says_what_is_not_proved() -> None:
    for row in ROWS:
        named = list(TEST.finditer(row["proof"]))
        assert len(named) == row["proof"].count("::"), row["number"]
        assert named or row["proof"].startswith(("Not proved", "Documentation")), row["number"]
        for test in named:
            source = (ROOT / "tests" / test["file"]).read_text("utf-8")
            assert re.search(rf"^(async )?def {test['name']}\(", source, re.MULTILINE), test[0]
