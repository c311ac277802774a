"""How a benchmark's figures are printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


@dataclass(frozen=True, slots=True)
class Ratio:
    """CPU microseconds of a token, ours and those of `beside`, and the threads that were alive meanwhile.

    `alone` is ours without the request's share.
    """

    name: str
    ours: float
    alone: float
    beside: str
    theirs: float
    our_threads: int
    their_threads: int


def ratios(title: str, rows: Sequence[Ratio]) -> str:
    """A Markdown table; the last column compares the rows with the first."""
    head = ["adapter", "CPU us per token", "threads", "beside", "CPU us per token", "threads", "ratio"]
    head += ["a token alone", f"beside {rows[0].name}'s"]
    cells = [
        (
            *(row.name, f"{row.ours:.0f}", str(row.our_threads)),
            *(row.beside, f"{row.theirs:.0f}", str(row.their_threads), f"{row.ours / row.theirs:.2f}"),
            *(f"{row.alone:.0f}", f"{row.alone / rows[0].alone:.2f}"),
        )
        for row in rows
    ]
    return columns(title, head, cells)


def grid(results: Mapping[str, Mapping[str, float | None]]) -> str:
    """Programs as columns and figures as rows, in Markdown."""
    names = list(dict.fromkeys(name for figures in results.values() for name in figures))
    lines = ["| figure | " + " | ".join(results) + " |", "| --- |" + " --- |" * len(results)]
    for name in names:
        lines.append(f"| {name} | " + " | ".join(_number(figures.get(name)) for figures in results.values()) + " |")
    return "\n".join(lines)


def ratio(ours: float | None, theirs: float | None) -> float | None:
    """`ours / theirs`, None where one is missing."""
    return None if ours is None or not theirs else ours / theirs


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
