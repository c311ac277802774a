"""Measures several programs in turns, so that whatever else the machine does falls on all of them alike."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.figures import GROWTHS, TURNS, Figure, settle
from benchmarks.load import Unavailable, Upstream
from benchmarks.targets import Target

Results = Mapping[str, Mapping[str, float | None]]
"""Program -> figure -> median."""


@contextmanager
def running(targets: Sequence[Target], folder: Path) -> Iterator[list[Target]]:
    """The programs that could be started, all asleep; one that could not is named and left out."""
    started: list[Target] = []
    try:
        for target in targets:
            try:
                target.start(folder)
            except Unavailable as reason:
                print(f"left out: {reason}", flush=True)
                target.stop()
            else:
                started.append(target)
                target.sleep()
        yield started
    finally:
        for target in started:
            target.stop()


def measure(targets: Sequence[Target], upstream: Upstream, figures: Sequence[Figure], rounds: int) -> Results:
    """Each figure of each program, in `rounds` whose order rotates; what fails is named and left out."""
    seen: dict[str, dict[str, list[float | None]]] = {target.name: {} for target in targets}
    for figure in figures:
        for turn in range(rounds * TURNS.get(figure, 1)):
            first = turn % len(targets)
            for target in (*targets[first:], *targets[:first]):
                target.wake()
                try:
                    found = figure(target, upstream)
                    settle(target, upstream)
                except (RuntimeError, OSError) as error:
                    print(f"! {target.name}: {error}", flush=True)
                    continue
                finally:
                    target.sleep()
                print(f"  {target.name}: {_shown(found)}", flush=True)
                for name, value in found.items():
                    seen[target.name].setdefault(name, []).append(value)
    return {program: {name: _of(name, values) for name, values in rows.items()} for program, rows in seen.items()}


def _of(name: str, values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    return max(known) if name in GROWTHS else statistics.median(known)


def _shown(found: Mapping[str, float | None]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in found.items() if value is not None)
