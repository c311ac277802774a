"""The one place that takes SIGTERM and SIGINT: the server is told only once everything that ran has had its end.

uvicorn closes every WebSocket in the moment it is told, and waits for HTTP streams as long as they like. Here a stop is
bounded: `limits.drain_seconds` for what runs, then END_SECONDS for terminal events, then the server's own shutdown.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any

from gateway.stopping import Stage, Stopping

log = logging.getLogger("polywire")

SIGNALS = (signal.SIGTERM, signal.SIGINT)
END_SECONDS = 0.75
"""For terminal events to be sent, and for runs to be stored."""
ABORT_SECONDS = 0.25
SERVER_SECONDS = 0.25
"""For what the server itself still has open after that: clients that do not read their last bytes."""

Handler = Callable[[int, FrameType | None], Any]


@asynccontextmanager
async def stop_signals(stopping: Stopping, limit: float) -> AsyncIterator[None]:
    """Within the block, the first signal drains the worker and then reaches the server; a second SIGINT hurries it.

    A second SIGTERM changes nothing: service managers send it to the supervisor and to its workers. Where no server has
    handlers, nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: handler for number in SIGNALS if callable(handler := signal.getsignal(number))}
    stop = _Stop(stopping, limit, handlers)
    loop = asyncio.get_running_loop()
    for number in handlers:
        signal.signal(number, lambda number, frame: loop.call_soon_threadsafe(stop.told, number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        await stop.aclose()


class _Stop:
    """One stop: from the first signal until the server's own handler is called."""

    def __init__(self, stopping: Stopping, limit: float, handlers: dict[signal.Signals, Handler]) -> None:
        self._stopping = stopping
        self._limit = limit
        self._handlers = handlers
        self._hurried = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def told(self, number: int) -> None:
        """A signal has come."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(signal.Signals(number)))
        elif number == signal.SIGINT:
            self._hurried.set()

    async def aclose(self) -> None:
        """Let go of the task; the server may come here by a way of its own."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self, number: signal.Signals) -> None:
        handler = self._handlers[number]
        limit = min(self._limit, _bound_server(handler))
        try:
            await self._drain(limit)
        finally:
            # The server looks at this once it is told; it waits for ever where nobody has bounded it.
            handler(number, None)

    async def _drain(self, limit: float) -> None:
        stopping = self._stopping
        log.info("shutting down: what runs has %g s to end", limit)
        stopping.reach(Stage.DRAINING)
        idle = asyncio.create_task(stopping.idle(limit))
        hurried = asyncio.create_task(self._hurried.wait())
        await asyncio.wait([idle, hurried], return_when=asyncio.FIRST_COMPLETED)
        for task in (idle, hurried):
            task.cancel()
        if stopping.at_work:
            log.warning("shutting down: what has not ended is ended now")
        stopping.reach(Stage.ENDING)
        await stopping.idle(END_SECONDS)
        stopping.reach(Stage.ABORTING)
        await stopping.idle(ABORT_SECONDS)


def _bound_server(handler: Handler) -> float:
    """Bound what uvicorn waits for after the drain; gives the bound it had, which holds for the drain instead."""
    config = getattr(getattr(handler, "__self__", None), "config", None)
    given: int | None = getattr(config, "timeout_graceful_shutdown", None)
    if config is not None:
        config.timeout_graceful_shutdown = SERVER_SECONDS
    return float("inf") if given is None else float(given)
