"""One thread of its own for an engine that blocks: steps run one after the other and never on the event loop.

A stream submits its next step when the last one is done, so streams take turns and nothing queues without a bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from gateway.errors import UpstreamUnavailable

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class EngineThread:
    """Runs steps in order. The thread starts with the first step and ends with `aclose`."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._closed = False

    async def run(
        self, step: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Result:
        """The step's result. When the caller is cancelled, a step that waits is dropped and a running one finishes."""
        if self._closed:
            raise UpstreamUnavailable("The embedded models are being closed.")
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: step(*args, **kwargs))

    def leave(self, step: Callable[[], object]) -> None:
        """Have `step` run after the one that is at work, without waiting: for a `finally` that must not linger."""
        try:
            self._pool.submit(step)
        except RuntimeError:
            # The thread has ended, so no step is at work.
            step()

    async def aclose(self) -> None:
        """Wait for the steps at work, then end the thread."""
        if self._closed:
            return
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(self._pool, _rest)
        self._pool.shutdown()


def _rest() -> None:
    """The last step: once it has run, the thread has nothing left and `shutdown` returns at once."""
