"""What one client saw of one fault, and how the tables of docs/faults.md tell it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tests.contract.scenario import PIECES
from tests.contract.wire_clients import Raw
from tests.contract.wire_entry import ERROR, WireEntry
from tests.faults.proxy import Fault

TEXT = "".join(PIECES)
IDLE_SECONDS = 3.0
LATEST_SECONDS = 4 * IDLE_SECONDS
WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class Cell:
    """What one client saw: `whole`, or by what it knew that something was wrong. `behind` is what the fault is at."""

    fault: Fault
    wire: str
    behind: str
    saw: str
    text: str
    seconds: float

    @property
    def right(self) -> bool:
        """Whole where nothing was lost; else an error in time, and no text that was never said."""
        if self.fault.harmless:
            return self.saw == WHOLE
        return self.saw.startswith(("error", "refused")) and TEXT.startswith(self.text) and self.in_time

    @property
    def in_time(self) -> bool:
        return self.seconds < LATEST_SECONDS

    def __str__(self) -> str:
        return f"{self.saw.partition(':')[0]} {self.seconds:.1f}"


def judged(wire: WireEntry, raw: Raw) -> tuple[str, str]:
    """What a strict client of the wire makes of `raw`, and the text that it read."""
    if raw.status >= 400:
        return f"refused {raw.status}", ""
    answer = wire.read(raw)
    if ERROR in answer.ends:
        return f"error: {answer.error or 'a broken body'}", answer.text
    if not answer.ends:
        return "no end", answer.text
    return (WHOLE if answer.text == TEXT else f"an end after {answer.text!r}"), answer.text


def wrong(cells: Iterable[Cell]) -> str:
    """Those that are not right, a line each."""
    return "\n".join(
        f"{cell.fault.value} | {cell.behind} | {cell.wire} | {cell.saw} | {cell.text!r} | {cell.seconds:.2f} s"
        for cell in cells
        if not cell.right
    )


def grids(cells: Sequence[Cell]) -> str:
    """One table per fault: a row for each wire, a column for what the fault is at."""
    tables = []
    for fault in Fault:
        own = [cell for cell in cells if cell.fault is fault]
        tables.append(f"### {fault.value}\n\n{_grid(own, lambda cell: cell.behind)}")
    return "\n".join(tables)


def across(cells: Sequence[Cell]) -> str:
    """One table: a row for each wire, a column for each fault."""
    return _grid(cells, lambda cell: cell.fault.value)


def _grid(cells: Sequence[Cell], column_of: Callable[[Cell], str]) -> str:
    columns = list(dict.fromkeys(map(column_of, cells)))
    found = {(cell.wire, column_of(cell)): cell for cell in cells}
    lines = [f"| wire | {' | '.join(columns)} |", "| --- |" + " --- |" * len(columns)]
    for wire in dict.fromkeys(cell.wire for cell in cells):
        row = " | ".join(str(found.get((wire, column), "-")) for column in columns)
        lines.append(f"| {wire} | {row} |")
    return "\n".join([*lines, ""])
