"""Waiting for a condition without a lock: `until` on one side, `changed` wherever something changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Signal:
    """Wakes every waiter at each change; each looks for itself whether its condition holds now."""

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until `holds()` is true; it is true when this returns."""
        while not holds():
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)

    def changed(self) -> None:
        """Something that a waiter may wait for has changed. May be called from a timer or a callback."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
