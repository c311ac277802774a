"""Polywire beside the gateways of others, nginx as a pass-through and a plain openai-SDK relay, in one run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.chart import lines
from benchmarks.figures import FEW, TEXT, paced
from benchmarks.gateways import litellm, nginx, portkey, sdk_relay, tensorzero
from benchmarks.interleaved import Results, measure, running
from benchmarks.load import Unavailable, Upstream
from benchmarks.table import grid, ratio
from benchmarks.targets import Target, polywire, scratch

OURS = "Polywire"
CHARACTERS = '{"prompt": "{control}"}'
CHAT = '{"type": "chat", "text": "{control}"}'
ASKED = (
    ("added ttft p50", "LiteLLM", "at most", 1 / 25),
    ("CPU us/token 10", "LiteLLM", "at most", 1 / 6),
    ("CPU us/token 10", "Portkey", "at most", 1 / 2),
    ("CPU us/token 10", "TensorZero", "at most", 1.2),
    ("CPU us/token 10", "nginx", "at most", 2.5),
    ("most streams", "LiteLLM", "at least", 18.0),
    ("most streams", "Portkey", "at least", 5.0),
    ("most streams", "TensorZero", "at least", 1.0),
    ("most streams", "nginx", "at least", 0.3),
    ("requests/s", "LiteLLM", "at least", 60.0),
    ("requests/s", "Portkey", "at least", 4.0),
)
"""What Polywire was built to reach: its figure divided by the other's."""


def section(rounds: int, pictures: Path) -> str:
    """The table, the ratios and a picture in `pictures`."""
    with scratch() as path, Upstream() as upstream:
        folder = Path(path)
        makers: list[Callable[[], Target]] = [
            lambda: Target("no gateway", port=upstream.port),
            lambda: nginx(upstream.url, folder),
            lambda: polywire(upstream.url, folder),
            lambda: sdk_relay(upstream.url),
            lambda: litellm(upstream.url, folder),
            lambda: portkey(upstream.url),
            lambda: tensorzero(upstream.url, folder),
        ]
        with running(list(_made(makers)), folder) as targets:
            results = measure(targets, upstream, TEXT, rounds)
        with running(_wires(upstream.url, folder), folder) as targets:
            wires = measure(targets, upstream, (FEW, paced(100)), rounds)
    (pictures / "relays.svg").write_text(_picture(results), encoding="utf-8")
    shown = _with_added(results)
    parts = ("### One worker on one core", grid(shown), "### What it was built to reach", _asked(shown))
    return "\n\n".join((*parts, _ratios(results), "### Polywire's other text wires", grid(wires)))


def _wires(url: str, folder: Path) -> list[Target]:
    return [
        polywire(url, folder, "OpenAI wire"),
        polywire(url, folder, "/generate", path="/generate", body=CHARACTERS),
        polywire(url, folder, "/ws text", path="/ws", hello=CHAT),
    ]


def _made(makers: Sequence[Callable[[], Target]]) -> list[Target]:
    made = []
    for maker in makers:
        try:
            made.append(maker())
        except Unavailable as reason:
            print(f"left out: {reason}", flush=True)
    return made


def _with_added(results: Results) -> Results:
    """All figures; delays and first tokens also as what each program adds to the way without it."""
    bare = results.get("no gateway", {})
    shown: dict[str, dict[str, float | None]] = {}
    for program, figures in results.items():
        row = dict(figures)
        for name in ("ttft p50", "ttft p99", "delay p50 10", "delay p99 10"):
            value, base = figures.get(name), bare.get(name)
            row[f"added {name}"] = None if value is None or base is None else value - base
        shown[program] = row
    return shown


def _asked(results: Results) -> str:
    ours = results.get(OURS, {})
    lines = ["| figure | beside | asked for | found |", "| --- | --- | --- | --- |"]
    for figure, beside, bound, asked in ASKED:
        found = ratio(ours.get(figure), results.get(beside, {}).get(figure))
        lines.append(f"| {figure} | {beside} | {bound} {asked:.3g} | {'-' if found is None else f'{found:.3g}'} |")
    return "\n".join(lines)


def _ratios(results: Results) -> str:
    ours = results.get(OURS, {})
    rows = {
        program: {
            name: ratio(ours.get(name), figures.get(name))
            for name in ("ttft p50", "requests/s", "CPU us/token 10", "CPU us/token 100", "most streams", "KiB/stream")
        }
        for program, figures in results.items()
        if program not in (OURS, "no gateway")
    }
    return "### Polywire's figure divided by theirs\n\n" + grid(rows)


def _picture(results: Results) -> str:
    series = {
        program: [(count, figures.get(f"CPU us/token {count}") or 0.0) for count in (10, 100, 500)]
        for program, figures in results.items()
        if program != "no gateway"
    }
    return lines("CPU for one token, by the number of streams", "streams of 50 tokens/s", "microseconds", series)
