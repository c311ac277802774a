"""A bound on what is at work at the same time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.errors import RateLimited


class Slots:
    """At most `most` streams at a time; a further one is refused at once, since a waiting line only hides the load."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0
        self._busy_since = self._idle_since = time.time()

    @property
    def activity(self) -> tuple[bool, float]:
        """Whether streams are at work, and since when that is so, in Unix seconds."""
        return (True, self._busy_since) if self._taken else (False, self._idle_since)

    def demand(self) -> None:
        """Raises RateLimited when all are taken."""
        if self._taken >= self._most:
            raise RateLimited(f"All {self._most} streams are in use; try again in a moment.", retry_after=1)

    @contextmanager
    def take(self) -> Iterator[None]:
        """One slot for the length of the block. Raises RateLimited when all are taken."""
        self.demand()
        if self._taken == 0:
            self._busy_since = time.time()
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1
            if self._taken == 0:
                self._idle_since = time.time()
