"""A bound on what is at work at the same time, in all and for each key."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.errors import RateLimited


class Slots:
    """At most `most` at a time, `each` of one owner; a further one is refused at once, since a line hides the load."""

    def __init__(self, most: int, each: int | None = None, *, what: str = "streams", full_status: int = 429) -> None:
        self._most = most
        self._each = each
        self._what = what
        self._full_status = full_status
        self._taken: Counter[str] = Counter()
        self._busy_since = self._idle_since = time.time()

    @property
    def activity(self) -> tuple[bool, float]:
        """Whether any is at work, and since when that is so, in Unix seconds."""
        return (True, self._busy_since) if self._taken else (False, self._idle_since)

    def demand(self, owner: str = "") -> None:
        """Raises RateLimited when there is no room."""
        if self._taken.total() >= self._most:
            raise RateLimited(
                f"All {self._most} {self._what} are in use; try again in a moment.",
                status=self._full_status,
                retry_after=1,
            )
        if self._each is not None and self._taken[owner] >= self._each:
            raise RateLimited(
                f"This key may have {self._each} {self._what} at a time; try again when one has ended.", retry_after=1
            )

    @contextmanager
    def take(self, owner: str = "") -> Iterator[None]:
        """One slot for the length of the block. Raises RateLimited when there is no room."""
        self.demand(owner)
        if not self._taken:
            self._busy_since = time.time()
        self._taken[owner] += 1
        try:
            yield
        finally:
            self._taken[owner] -= 1
            if not self._taken[owner]:
                del self._taken[owner]
            if not self._taken:
                self._idle_since = time.time()
