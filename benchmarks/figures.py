"""The figures of one program under one load. Each function gives plain numbers; None where there is none."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from benchmarks.load import Load, Upstream
from benchmarks.targets import Target

Figures = Mapping[str, float | None]
Figure = Callable[[Target, Upstream], Figures]

TOKEN_MICROSECONDS = 20_000
"""A paced stream has 50 tokens, or frames of 20 ms, a second."""
LATEST_TEXT, LATEST_AUDIO = 50.0, 20.0
"""Milliseconds that the slowest token in a hundred may be late."""
LEAVERS = 40
STEPS = 7
OFFERED = ", compression offered"


def first_token(target: Target, upstream: Upstream) -> Figures:
    """Milliseconds to the first token of one stream at a time."""
    said = target.run(Load(tokens=8, seconds=2, warm=0.3))
    return {"ttft p50": _quantile(said, "ttft_ms"), "ttft p99": _quantile(said, "ttft_ms", "p99")}


def requests(target: Target, upstream: Upstream) -> Figures:
    """Streams of 16 tokens each second, 16 at once."""
    said = target.run(Load(streams=16, tokens=16, seconds=2))
    return {"requests/s": said["done_s"]}


def paced(streams: int, *, offered: bool = False) -> Figure:
    """CPU, delay and gaps with `streams` streams of 50 tokens a second; `offered` as in `most_streams`."""
    label = f"{streams}{OFFERED if offered else ''}"

    def measure(target: Target, upstream: Upstream) -> Figures:
        said = target.run(_paced(streams, offered))
        return {
            f"CPU us/token {label}": _cpu(said),
            f"delay p50 {label}": _delay(said, "p50"),
            f"delay p99 {label}": _delay(said, "p99"),
            f"gap p99 {label}": _quantile(said, "gap_ms", "p99"),
        }

    return measure


def most_streams(latest: float, *, offered: bool = False) -> Figure:
    """The most paced streams whose p99 delay is at most `latest` ms, with 98 % delivered and no error.

    `offered`: the client offers to take compressed messages, as every browser does. Marks cannot be found in those, so
    a message is late by what its first one and the pace make of it.
    """

    def holds(target: Target, streams: int) -> bool:
        said = target.run(_paced(streams, offered))
        delay = _delay(said, "p99")
        return said["errors"] == 0 and said["tokens_s"] >= 0.98 * 50 * streams and delay is not None and delay <= latest

    def measure(target: Target, upstream: Upstream) -> Figures:
        probe = target.run(Load(streams=20, interval=TOKEN_MICROSECONDS, ramp=0.3, seconds=1))
        held, failed, streams = 0, None, max(5, int(1e6 / 50 / max(_cpu(probe) or 20.0, 15.0) * 1.2))
        for _ in range(STEPS):
            if holds(target, streams):
                held = streams
            else:
                failed = streams
            if failed is not None and failed - held <= 0.08 * failed:
                break
            streams = int(held * 1.35) if failed is None else (held + failed) // 2
            settle(target, upstream)
        return {f"most streams{OFFERED if offered else ''}": held}

    return measure


def memory(target: Target, upstream: Upstream) -> Figures:
    """KiB for each open stream, beyond what the program needs for none."""
    streams = 300
    target.run(Load(streams=50, tokens=20, interval=1000, seconds=1))
    time.sleep(0.5)
    before = target.memory
    said = target.run(Load(streams=streams, tokens=1000, interval=500_000, ramp=1.5, warm=1.5, seconds=1))
    watched = said["watch"].get("gw")
    return {"KiB/stream": (watched["pss1_kb"] - before / 1024) / streams if watched else None}


def leaving(name: str, load: Load, *more: str) -> Figure:
    """How many of LEAVERS upstream streams were closed after their client left, and the median time to it in ms."""

    def measure(target: Target, upstream: Upstream) -> Figures:
        upstream.ask("/__reset")
        said = target.run(replace(load, more=more))
        time.sleep(1.5)
        closed = {event["id"]: event["t"] for event in upstream.ask("/__events")}
        waits = [(closed[id] - left) / 1e6 for id, left, _ in said["cancels"] if id in closed]
        return {f"closed {name}": len(waits), f"close p50 {name}": statistics.median(waits) if waits else None}

    return measure


def slow_reader(target: Target, upstream: Upstream) -> Figures:
    """MiB that the program grows by for each of four clients that stop reading while the upstream goes on."""
    before = target.memory
    said = target.run(Load(streams=4, tokens=200_000, burst=16, seconds=4, more=("--slow-after", "1")))
    watched = said["watch"].get("gw")
    return {"slow MiB/stream": max(0.0, watched["pss1_kb"] / 1024 - before / 2**20) / 4 if watched else None}


_LEAVING = Load(streams=20, ramp=0.3, seconds=15, requests=LEAVERS, warm=0)

FEW = paced(10)
TEXT: tuple[Figure, ...] = (
    memory,
    first_token,
    requests,
    FEW,
    paced(100),
    paced(500),
    most_streams(LATEST_TEXT),
    leaving("before", replace(_LEAVING, tokens=20, interval=20_000, silence=6_000_000), "--cancel-ms", "300"),
    leaving("midway", replace(_LEAVING, tokens=2000, interval=20_000), "--cancel-after", "10"),
    leaving("silent", replace(_LEAVING, tokens=20, interval=4_000_000), "--cancel-after", "1", "--cancel-ms", "300"),
    slow_reader,
)
"""In the order in which they are measured: memory first, since what a program has once taken it uses again."""
TURNS: Mapping[Figure, int] = {first_token: 3, requests: 5, FEW: 3}
"""How often a round measures what takes seconds: a shared machine is slow or fast for longer than that."""
GROWTHS = ("KiB/stream", "slow MiB/stream")
"""Of these the most of all rounds counts."""


def settle(target: Target, upstream: Upstream) -> None:
    """End what runs at the upstream and wait until the program is idle: no measurement pays for the one before."""
    upstream.ask("/__killall")
    for _ in range(40):
        before = _seconds(target)
        time.sleep(0.2)
        if upstream.ask("/__stats")["active"] == 0 and _seconds(target) - before < 0.01:
            return


def _seconds(target: Target) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in target.processes)


def _paced(streams: int, offered: bool) -> Load:
    more = ("--ws-deflate",) if offered else ()
    ramp = max(0.5, streams / 400)
    return Load(streams=streams, interval=TOKEN_MICROSECONDS, ramp=ramp, warm=0.7, more=more)


def _delay(said: Mapping[str, Any], which: str) -> float | None:
    return _quantile(said, "delay_ms", which) or _quantile(said, "late_ms", which)


def _quantile(said: Mapping[str, Any], name: str, which: str = "p50") -> float | None:
    return said[name][which] if said.get(name) else None


def _cpu(said: Mapping[str, Any]) -> float | None:
    watched = said["watch"].get("gw")
    return watched["us_per_token"] if watched and said["tokens_s"] else None
