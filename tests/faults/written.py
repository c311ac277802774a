"""docs/faults.md, which `make faults` writes: one section for each table."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.faults.cells import Cell
from tests.running import ROOT

PAGE = ROOT / "docs" / "faults.md"


def write_section(title: str, cells: Sequence[Cell], text: str, seconds: float) -> None:
    """Replace the section `title` of the page by `text`, which shows `cells`."""
    slowest = max(cell.seconds for cell in cells)
    counted = f"{len(cells)} questions in {seconds:.0f} s; the slowest took {slowest:.1f} s."
    section = f"## {title}\n\n{counted}\n\n{text}\n"
    page = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    if not pattern.search(page):
        raise ValueError(f"{PAGE} has no section {title!r}")
    PAGE.write_text(pattern.sub(lambda _: section, page).rstrip() + "\n", encoding="utf-8")
