"""What a token and a stream cost as there are more of them, and what long answers and long inputs cost."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.chart import lines
from benchmarks.figures import settle
from benchmarks.load import Load, Upstream
from benchmarks.table import grid
from benchmarks.targets import MODEL, Target, polywire, scratch

STREAMS = (1, 10, 100, 1000, 2000)
WORKERS = (1, 2)
INTERVAL = 200_000
"""Microseconds: at five tokens a second 2,000 streams are within what one core can do."""
ANSWERS = (1_000, 10_000, 100_000)
INPUTS = (4_000, 40_000, 390_000)
"""Characters; the bound is 400,000."""
ASKED = 100

Found = dict[str, dict[str, float | None]]


def section(rounds: int, pictures: Path) -> str:
    """Tables and two pictures."""
    by_count: Found = {}
    with scratch() as path, Upstream() as upstream:
        for workers in WORKERS:
            target = polywire(upstream.url, Path(path), f"{workers} worker{'s' * (workers > 1)}", workers=workers)
            target.start(Path(path))
            try:
                by_count[target.name] = _by_count(target, upstream, rounds)
                if workers == 1:
                    long = {"microseconds of CPU": _long(target, upstream, Path(path))}
            finally:
                target.stop()
    for name, unit, file in (("CPU us/token", "microseconds", "cpu"), ("KiB/stream", "KiB", "memory")):
        series = {
            run: [(count, found.get(f"{name} {count}") or 0.0) for count in STREAMS] for run, found in by_count.items()
        }
        picture = lines(f"{name}, by the number of streams", "streams of 5 tokens/s", unit, series)
        (pictures / f"growth-{file}.svg").write_text(picture, encoding="utf-8")
    return "\n\n".join((grid(by_count), "### Long answers and long inputs", grid(long)))


def _by_count(target: Target, upstream: Upstream, rounds: int) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for count in STREAMS:
        costs, sizes = [], []
        for _ in range(rounds):
            before = target.memory
            said = target.run(Load(streams=count, interval=INTERVAL, seconds=3, warm=1, ramp=max(0.5, count / 400)))
            costs.append(said["watch"]["gw"]["us_per_token"])
            sizes.append((said["watch"]["gw"]["pss1_kb"] - before / 1024) / count)
            settle(target, upstream)
        # The first run of a size fills pools that the next one uses again.
        found |= {f"CPU us/token {count}": min(costs), f"KiB/stream {count}": max(sizes)}
        print(f"  {target.name}, {count} streams: {min(costs):.4g} us, {max(sizes):.4g} KiB", flush=True)
    return found


def _long(target: Target, upstream: Upstream, folder: Path) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for tokens in ANSWERS:
        spent = _spent(target, Load(tokens=tokens, requests=ANSWERS[-1] // tokens, seconds=60, warm=0))
        found[f"for each token of an answer of {tokens:,}"] = spent / ANSWERS[-1]
    for characters in INPUTS:
        body = folder / "body.json"
        content = "word " * (characters // 5 - 20) + Load(tokens=2).control
        messages = [{"role": "user", "content": content}]
        body.write_text(json.dumps({"model": MODEL, "stream": True, "messages": messages}), encoding="utf-8")
        load = Load(tokens=2, requests=ASKED, seconds=60, warm=0, more=("--body-file", str(body)))
        found[f"for a request with an input of {characters:,} characters"] = _spent(target, load) / ASKED
    return found


def _spent(target: Target, load: Load) -> float:
    """Microseconds of CPU for all of `load`."""
    before = _cpu(target)
    target.run(load)
    return (_cpu(target) - before) * 1e6


def _cpu(target: Target) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in target.processes)
