"""A bound on what is at work at the same time, in all and for each key."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import AbstractAsyncContextManager

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

    def take(self, owner: str = "") -> Slot:
        """One slot for the length of a `with` block, which raises RateLimited when there is no room."""
        return Slot(self, owner)

    def enter(self, owner: str) -> None:
        """For `Slot`."""
        self.demand(owner)
        if not self._taken:
            self._busy_since = time.time()
        self._taken[owner] += 1

    def leave(self, owner: str) -> None:
        """For `Slot`."""
        self._taken[owner] -= 1
        if not self._taken[owner]:
            del self._taken[owner]
        if not self._taken:
            self._idle_since = time.time()


class Slot(AbstractAsyncContextManager[None]):
    """One slot, as a context manager, plain or `async`; not a generator, which costs each stream four times as much."""

    __slots__ = ("_owner", "_slots")

    def __init__(self, slots: Slots, owner: str) -> None:
        self._slots = slots
        self._owner = owner

    def __enter__(self) -> None:
        self._slots.enter(self._owner)

    def __exit__(self, *_: object) -> None:
        self._slots.leave(self._owner)

    async def __aenter__(self) -> None:
        self._slots.enter(self._owner)

    async def __aexit__(self, *_: object) -> None:
        self._slots.leave(self._owner)
