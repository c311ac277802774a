"""What `make soak` calls flat: a leak is found under the noise of a busy machine, and the noise is no leak."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from benchmarks.soak import Figures, grown

WINDOWS = 8


def noisy(seed: int) -> list[Figures]:
    """Windows of a flat service on a busy machine, whose timers are late when its answers are."""
    rolled = random.Random(seed)
    windows = []
    for _ in range(WINDOWS):
        late = rolled.choice((2.0, 5.0, 40.0))
        first = 6 * rolled.uniform(0.8, 1.4)
        windows.append(Figures(330 + rolled.uniform(-1.5, 1.5), rolled.choice((58, 59, 61)), first, 20 + late, late))
    return windows


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_flat(seed: int) -> None:
    assert grown(noisy(seed)) == []


def test_one_wild_window_is_no_growth() -> None:
    windows = noisy(1)
    windows[-1] = Figures(400, 120, 900, 2000, 10)
    assert grown(windows) == []


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(
    ("field", "each", "name"),
    [
        ("megabytes", 2.5, "memory, MB"),
        ("descriptors", 1.5, "descriptors"),
        ("first_median", 2, "time to the first piece, median ms"),
        ("first_p99", 15, "time to the first piece, p99 ms"),
    ],
)
def test_what_grows_by_each_window_is_named(seed: int, field: str, each: float, name: str) -> None:
    windows = [
        replace(window, **{field: getattr(window, field) + number * each}) for number, window in enumerate(noisy(seed))
    ]
    assert grown(windows) == [name]
