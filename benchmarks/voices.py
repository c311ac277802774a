"""Speech over `/ws` in frames of 20 ms, beside the same socket under `bentoml serve` as it comes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.figures import LATEST_AUDIO, leaving, memory, most_streams, paced, slow_reader
from benchmarks.interleaved import measure, running
from benchmarks.load import Load, Upstream
from benchmarks.table import grid, ratio
from benchmarks.targets import plain_voice, polywire, scratch

OURS = "Polywire /ws"
SPEAK = '{"type": "speak", "text": "{control}"}'
LEAVERS = Load(streams=20, tokens=2000, interval=20_000, ramp=0.3, seconds=15, requests=40, warm=0)
FIGURES = (
    memory,
    paced(30),
    most_streams(LATEST_AUDIO),
    leaving("midway", LEAVERS, "--cancel-after", "10"),
    slow_reader,
)


def section(rounds: int, pictures: Path) -> str:
    """The table and the ratios. A token is a frame here; a program without an upstream closes none."""
    with scratch() as path, Upstream() as upstream:
        folder = Path(path)
        programs = [
            polywire(upstream.url, folder, OURS, path="/ws", hello=SPEAK),
            plain_voice(folder, upstream.url),
            plain_voice(folder),
        ]
        with running(programs, folder) as targets:
            results = measure(targets, upstream, FIGURES, rounds)
    ours: Mapping[str, float | None] = results.get(OURS, {})
    ratios = {
        program: {name: ratio(ours.get(name), figures.get(name)) for name in ("CPU us/token 30", "most streams")}
        for program, figures in results.items()
        if program != OURS
    }
    return grid(results) + "\n\n### Polywire's figure divided by theirs\n\n" + grid(ratios)
