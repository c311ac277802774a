"""Which test proves which open case: a test says `Case X1` in its docstring, or its module does for all of its tests."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.running import ROOT

CASES = tuple(
    ["X1", "C1", "R1", "V1", "E1", "C3", "R2", "B1", "T1", "T3", "A1", "V3", "S3", "C5", "C7", "I1", "S5", "N2", "N1", "B3", "L1", "W3", "E5", "A3", "P1", "R7", "A7", "Z1", "Z2", "S2", "S7", "Z4", "W1", "Q1", "A5", "X4", "W5"]
)
NAMED = re.compile(r"\bCases? ((?:[A-Z]\d(?:'s)?(?:, | and )?)+)")
ID = re.compile(r"[A-Z]\d")


def tests_by_case() -> dict[str, list[str]]:
    """The node ids of the tests that name each case."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for test, docstring in _documented(path):
            for case in _ids(docstring):
                found[case].append(f"{path.relative_to(ROOT)}::{test}")
    return dict(found)


def _documented(path: Path) -> Iterator[tuple[str, str]]:
    module = ast.parse(path.read_text(encoding="utf-8"))
    shared = ast.get_docstring(module) or ""
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.name, f"{shared}\n{ast.get_docstring(node) or ''}"


def _ids(docstring: str) -> set[str]:
    return {case for named in NAMED.findall(docstring) for case in ID.findall(named)}
