"""Writes docs/licences.md: the licence of every package that a running Polywire has, in the package's words."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", re.MULTILINE)
SOURCES = ("requirements.lock", "requirements-models.txt")
CLASSIFIER = "License :: "


def licence(name: str) -> str:
    """What the installed package says of its licence, in a few words."""
    try:
        found = metadata(name)
    except PackageNotFoundError:
        return "(not installed on this platform)"
    if expression := (found.get_all("License-Expression") or [""])[0]:
        return str(expression)
    classified = [line for line in found.get_all("Classifier") or () if line.startswith(CLASSIFIER)]
    if classified:
        return "; ".join(line.rpartition(" :: ")[2] for line in classified)
    stated = str((found.get_all("License") or [""])[0]).strip().splitlines()
    return stated[0][:60] if stated else "(not stated)"


def main() -> None:
    """Rewrite the page."""
    pinned = [match for source in SOURCES for match in PINNED.findall((ROOT / source).read_text(encoding="utf-8"))]
    rows = [f"| {name} | {version} | {licence(name)} |" for name, version in sorted(pinned)]
    head = ["# Licences", "", "Of the packages in `requirements.lock`. Written by `make licences`.", ""]
    table = ["| package | version | licence |", "| --- | --- | --- |", *rows, ""]
    (ROOT / "docs" / "licences.md").write_text("\n".join(head + table), encoding="utf-8")


if __name__ == "__main__":
    main()
