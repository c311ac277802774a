"""Spoken chats over `/ws`, a scripted chat model and the embedded voice: one at a time, and twenty at once."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.table import columns
from tests.running import Service
from tests.spoken_chats import Listened, crowd, listen, spoken_service

ALONE = 15
SESSIONS = 20
HEAD = ("what", "median", "worst")


def section(rounds: int, pictures: Path) -> str:
    """One table for a chat by itself, one for a crowd."""
    with tempfile.TemporaryDirectory() as folder, spoken_service(Path(folder)) as service:
        asyncio.run(listen(service))
        alone = asyncio.run(_one_by_one(service))
        crowds = [asyncio.run(crowd(service, SESSIONS)) for _ in range(rounds)]
    heard = [one for sessions, _ in crowds for one in sessions]
    late = [late for _, words in crowds for late in words]
    clause = _row("first audio after the end of the first clause, ms", alone, lambda one: one.first_audio_after_clause)
    return "\n\n".join(
        (
            columns("A spoken chat by itself", HEAD, [clause]),
            columns(f"{SESSIONS} spoken chats at once", HEAD, [*_crowd_rows(heard), _late_row(late)]),
        )
    )


async def _one_by_one(service: Service) -> list[Listened]:
    return [await listen(service) for _ in range(ALONE)]


def _crowd_rows(heard: Sequence[Listened]) -> list[tuple[str, str, str]]:
    factors = sorted(one.real_time_factor for one in heard)
    return [
        ("seconds of audio per second", f"{_median(factors):.2f}", f"{factors[0]:.2f}"),
        _row("first audio, ms", heard, lambda one: one.first_audio),
        _row("first audio after the end of the first clause, ms", heard, lambda one: one.first_audio_after_clause),
        ("times that a player ran dry", *_spread([one.underruns for one in heard], "{:.0f}")),
        _row("silence in a player that ran dry, ms", heard, lambda one: one.stalled),
    ]


def _late_row(late: Sequence[float]) -> tuple[str, str, str]:
    return ("lateness of another stream's words, ms", *_spread([1000 * seconds for seconds in late], "{:.1f}"))


def _row(name: str, heard: Sequence[Listened], seconds: Callable[[Listened], float]) -> tuple[str, str, str]:
    return (name, *_spread([1000 * seconds(one) for one in heard], "{:.0f}"))


def _spread(values: Sequence[float], shape: str) -> tuple[str, str]:
    return shape.format(_median(sorted(values))), shape.format(max(values))


def _median(values: Sequence[float]) -> float:
    return values[len(values) // 2]
