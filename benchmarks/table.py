"""How a benchmark's figures are printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One figure in milliseconds, over several rounds."""

    name: str
    median: float
    least: float
    most: float


def columns(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table of any columns."""
    lines = [f"### {title}", "", *(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))]
    return "\n".join(lines)


def table(title: str, rows: Sequence[Row]) -> str:
    """A Markdown table."""
    lines = [f"### {title}", "", "| what | median ms | least | most |", "| --- | --- | --- | --- |"]
    lines += [f"| {row.name} | {row.median:.0f} | {row.least:.0f} | {row.most:.0f} |" for row in rows]
    return "\n".join(lines)
