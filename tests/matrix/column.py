"""What a column of the matrix is: one provider, and an upstream for each behaviour. The list is `columns.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.events import Usage
from tests.contract.scenario import USAGE, Scenario
from tests.running import Service

TEXT, FIRST, MIDWAY, CANCEL, CUT = BEHAVIOURS = ("text", "first", "midway", "cancel", "cut")
"""A whole answer; a refusal before it; an error, silence and an end in the middle of one."""
LETTER = dict(zip(BEHAVIOURS, "tfmcx", strict=True))
OUTCOMES = {TEXT: "finished", FIRST: "failed", MIDWAY: "failed", CANCEL: "cancelled", CUT: "truncated"}
PROMPT = "Say hello."
SOON = 5.0
"""Seconds in which an upstream must be let go on any machine; it would wait for ever."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """What stands behind one behaviour: `model` as clients name it. `begun` waits until the upstream has said
    something of an answer that is still open, `left` until it sees that nobody listens any more."""

    model: str
    begun: Callable[[], Awaitable[object]]
    left: Callable[[], Awaitable[object]]
    prompt: str = PROMPT
    owner: str | None = "matrix"
    """The first part of its name where clients name models by two."""


@dataclass(slots=True)
class Column:
    """One provider. `rows` and `models` go into polywire.yaml; `join` does what is left once the service runs.

    `whole` and `half` are the texts of an answer and of one that breaks off, None where they are not known before;
    `check` asserts then what can be known of a whole one, and `tries` is for a model that may say something else.
    `status` is that of the refusal. `alone` keeps its cells from running beside others. `breaks` makes the upstream of
    `cut` break off. `cannot` names the letters that the provider gives no occasion for, and why; `cannot_whole` those
    for which there is none when a whole answer is asked for.
    """

    name: str
    upstreams: dict[str, Upstream]
    rows: list[dict[str, Any]] = field(default_factory=list)
    models: list[dict[str, Any]] = field(default_factory=list)
    join: Callable[[Service], Awaitable[None]] | None = None
    whole: str | bytes | None = Scenario().text
    half: str | bytes | None = "Hello "
    usage: Usage | None = USAGE
    status: int = 429
    kind: str = "chat"
    alone: bool = False
    breaks: Callable[[], Awaitable[None]] | None = None
    tries: int = 1
    check: Callable[[Any], Awaitable[None]] | None = None
    cannot: Mapping[str, str] = field(default_factory=dict)
    cannot_whole: Mapping[str, str] = field(default_factory=dict)


async def until(holds: Callable[[], object]) -> None:
    """Wait until something outside of this process holds."""
    clock = asyncio.get_running_loop().time
    start = clock()
    while not await asyncio.to_thread(holds):
        assert clock() - start < SOON
        await asyncio.sleep(0.02)
