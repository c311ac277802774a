"""Counts and observations on their way to the metrics: those of a moment are written together.

prometheus_client writes each to a file under a lock; a request has twelve, which cost more than all that a gateway adds
to its tokens.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter as Counts
from collections import defaultdict

from prometheus_client import Counter, Gauge, Histogram

WRITE_SECONDS = 0.1
"""How late another process may see what happened here: `/metrics` writes its own first and waits so long for theirs."""


class Tally:
    """What has happened and is not written yet; of one thread, whose event loop writes it a moment later."""

    def __init__(self) -> None:
        self._sums: defaultdict[Counter | Gauge, float] = defaultdict(float)
        self._seen: defaultdict[Histogram, list[float]] = defaultdict(list)
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, metric: Counter | Gauge, amount: float = 1) -> None:
        """Count up or, for a gauge, down."""
        self._sums[metric] += amount
        self._write_later()

    def observe(self, histogram: Histogram, value: float) -> None:
        """Count one value of a histogram."""
        self._seen[histogram].append(value)
        self._write_later()

    def write(self) -> None:
        """Write all that was tallied."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        sums, seen = list(self._sums.items()), list(self._seen.items())
        self._sums.clear()
        self._seen.clear()
        for metric, amount in sums:
            metric.inc(amount)
        for histogram, values in seen:
            _observe_all(histogram, values)

    def _write_later(self) -> None:
        if self._timer is None or self._loop is None or self._loop.is_closed():
            self._loop = asyncio.get_running_loop()
            self._timer = self._loop.call_later(WRITE_SECONDS, self.write)


def _observe_all(histogram: Histogram, values: list[float]) -> None:
    """As `histogram.observe` for each, with one write for each bucket."""
    histogram._sum.inc(sum(values))
    for bucket, count in Counts(bisect_left(histogram._upper_bounds, value) for value in values).items():
        histogram._buckets[bucket].inc(count)
