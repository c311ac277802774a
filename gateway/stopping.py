"""How far the stop of this worker has come, and who wants to know.

A stop goes through the stages in order: no new work is taken, then what still runs is ended in its own way, then what
is left is broken off. Nothing here knows of signals or servers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum

from gateway.errors import GatewayError, UpstreamUnavailable

RETRY_SECONDS = 2.0
"""When a refused caller may come back: another replica serves it at once, a single one has to start again."""


class Stage(IntEnum):
    """What a worker does: its work, only what it had, ending that, breaking off what does not end."""

    SERVING = 0
    DRAINING = 1
    ENDING = 2
    ABORTING = 3


class Stopping:
    """The stage of one worker, the calls that it makes when it gets there, and the work that has not ended."""

    def __init__(self) -> None:
        self.stage = Stage.SERVING
        self.at_work = 0
        self._calls: dict[Stage, dict[object, Callable[[], object]]] = {stage: {} for stage in Stage}
        self._idle = asyncio.Event()

    def reach(self, stage: Stage) -> None:
        """Go on to `stage`; stages that were passed already change nothing."""
        if stage <= self.stage:
            return
        self.stage = stage
        for call in list(self._calls[stage].values()):
            call()

    def at(self, stage: Stage, call: Callable[[], object]) -> Calling:
        """Within the block, `call` is made when the worker reaches `stage`; not for a stage that it has reached."""
        return Calling(self._calls[stage], call)

    def work(self) -> Working:
        """A block that a stop waits for."""
        return Working(self)

    def begin_work(self) -> None:
        """For `Working`."""
        self.at_work += 1
        self._idle.clear()

    def end_work(self) -> None:
        """For `Working`."""
        self.at_work -= 1
        if not self.at_work:
            self._idle.set()

    async def idle(self, seconds: float) -> None:
        """Wait until nothing is at work, but not longer than so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.at_work:
                    await self._idle.wait()

    def demand(self) -> None:
        """Raises what a new request is told once no new work is taken."""
        if self.stage > Stage.SERVING:
            raise shutting_down("Polywire is shutting down; try again.")


class Calling:
    """`Stopping.at` as a context manager; classes here, since every request enters several of them."""

    __slots__ = ("_call", "_calls")

    def __init__(self, calls: dict[object, Callable[[], object]], call: Callable[[], object]) -> None:
        self._calls = calls
        self._call = call

    def __enter__(self) -> None:
        self._calls[self] = self._call

    def __exit__(self, *_: object) -> None:
        del self._calls[self]


class Working:
    """`Stopping.work` as a context manager."""

    __slots__ = ("_stopping",)

    def __init__(self, stopping: Stopping) -> None:
        self._stopping = stopping

    def __enter__(self) -> None:
        self._stopping.begin_work()

    def __exit__(self, *_: object) -> None:
        self._stopping.end_work()


def shutting_down(message: str = "Polywire was shut down while this stream ran; try again.") -> GatewayError:
    """The end of what a stop meets."""
    return UpstreamUnavailable(message, code="shutting_down", retry_after=RETRY_SECONDS)
