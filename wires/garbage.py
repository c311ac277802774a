"""When the collector of garbage looks through what is old: when there is more than the open connections explain.

By itself it does so each time that a quarter more has become old, walks whatever all connections hold, and every stream
waits: a second at 10,000 idle WebSockets. What ends is freed by its count of references; cycles are the exception.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable
from typing import Self

NEW_OBJECTS = 5_000
"""How many more objects there are before garbage is looked for among the new ones."""
YOUNG_ROUNDS = 4
"""After so many of those it is looked for among the survivors too."""
NEVER = 2**31 - 1
LOOK_SECONDS = 1.0
BLOCKS_PER_CONNECTION = 800
"""Twice what an idle WebSocket holds: that and two thirds of a stream."""
UNEXPLAINED_BLOCKS = 100_000
"""The garbage that may lie about. A collection takes 0.3 s for a million blocks, so 30 ms when that is all there is."""
SHARE_OF_KEPT = 4
"""And a quarter of what was not garbage the last time, so that large caches are not walked again and again."""


def tune_collector() -> None:
    """The streams at work hold more than Python's 700 new objects, which it would walk at every third request."""
    gc.set_threshold(NEW_OBJECTS, YOUNG_ROUNDS)
    keep_what_is_loaded()


def keep_what_is_loaded() -> None:
    """Leave out of every collection what there is by now.

    A full one walks everything that was imported, 0.1 s in which all streams wait; none of it is ever garbage.
    """
    gc.freeze()


class GarbageKeeper:
    """Collects what is old in Python's place, for as long as its block lasts; `connections` says how many are open."""

    def __init__(self, connections: Callable[[], int]) -> None:
        self._connections = connections
        self._loaded = self._kept = 0
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        gc.set_threshold(NEW_OBJECTS, YOUNG_ROUNDS, NEVER)
        self._loaded = sys.getallocatedblocks()
        self._wait()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        gc.set_threshold(NEW_OBJECTS, YOUNG_ROUNDS, YOUNG_ROUNDS)

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._wait()
        explained = self._connections() * BLOCKS_PER_CONNECTION
        grown = sys.getallocatedblocks() - self._loaded
        if grown > explained + self._kept + max(UNEXPLAINED_BLOCKS, self._kept // SHARE_OF_KEPT):
            gc.collect()
            self._kept = max(0, sys.getallocatedblocks() - self._loaded - explained)
