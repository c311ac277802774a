"""Metrics that are written together are those that were counted one by one."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from gateway import tally as tallies
from gateway.tally import Tally

BOUNDS = (0.5, 1.0, 2.0)
VALUES = st.floats(0, 4) | st.sampled_from((*BOUNDS, 2.5))


class Metrics:
    """One of each kind, by themselves."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.counter = Counter("counted", "c", registry=self.registry)
        self.gauge = Gauge("open", "g", registry=self.registry)
        self.histogram = Histogram("seen", "h", buckets=BOUNDS, registry=self.registry)

    @property
    def text(self) -> list[str]:
        lines = generate_latest(self.registry).decode().splitlines()
        # Sums of floats depend on their order in the last digit; creation times differ.
        return [line for line in lines if "_created" not in line and "seen_sum" not in line]

    @property
    def sum(self) -> float:
        return self.registry.get_sample_value("seen_sum") or 0


@given(values=st.lists(VALUES, max_size=20), ups=st.integers(0, 5), downs=st.integers(0, 5))
def test_what_is_tallied_is_what_is_counted_one_by_one(values: list[float], ups: int, downs: int) -> None:
    async def count() -> Metrics:
        metrics, tally = Metrics(), Tally()
        for value in values:
            tally.observe(metrics.histogram, value)
            tally.add(metrics.counter)
        for _ in range(ups):
            tally.add(metrics.gauge)
        for _ in range(downs):
            tally.add(metrics.gauge, -1)
        tally.write()
        return metrics

    tallied, single = asyncio.run(count()), Metrics()
    for value in values:
        single.histogram.observe(value)
        single.counter.inc()
    single.gauge.inc(ups)
    single.gauge.dec(downs)
    assert tallied.text == single.text
    assert abs(tallied.sum - single.sum) < 1e-9


async def test_it_is_written_by_itself_once_the_moment_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics, tally = Metrics(), Tally()
    tally.add(metrics.counter)
    await asyncio.sleep(0)
    assert metrics.registry.get_sample_value("counted_total") == 0
    tally.write()
    monkeypatch.setattr(tallies, "WRITE_SECONDS", 0.0)
    tally.add(metrics.counter)
    await turns()
    assert metrics.registry.get_sample_value("counted_total") == 2


async def turns() -> None:
    """Let the loop's timers of now be called."""
    for _ in range(3):
        await asyncio.sleep(0)


def test_what_an_ended_loop_left_is_written_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics, tally = Metrics(), Tally()

    async def count() -> None:
        tally.add(metrics.counter)

    async def count_again() -> None:
        monkeypatch.setattr(tallies, "WRITE_SECONDS", 0.0)
        tally.add(metrics.counter)
        await turns()

    asyncio.run(count())
    asyncio.run(count_again())
    assert metrics.registry.get_sample_value("counted_total") == 2
