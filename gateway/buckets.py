"""Token buckets in this worker's memory, with the same `take` as a store that all workers share."""

from __future__ import annotations

import time
from typing import Protocol, runtime_checkable

from gateway.config import Settings


@runtime_checkable
class Buckets(Protocol):
    """Buckets by key; each holds at most `capacity` and fills up in `per_seconds`."""

    async def take(self, key: str, amount: float, *, capacity: float, per_seconds: float) -> float:
        """0 when `amount` was taken, else the seconds until it could be. A negative amount is put back."""
        ...


def several_count(settings: Settings) -> bool:
    """Whether what is counted must be counted in the store, because other workers or replicas count as well."""
    return settings.workers > 1 or not settings.store.startswith("sqlite")


class LocalBuckets:
    """A `Buckets` for one worker. It keeps one entry for each key of the configuration."""

    def __init__(self) -> None:
        self._levels: dict[str, tuple[float, float]] = {}

    async def take(self, key: str, amount: float, *, capacity: float, per_seconds: float) -> float:
        level = self.level(key, capacity=capacity, per_seconds=per_seconds)
        if level < amount:
            return (amount - level) * per_seconds / capacity
        self._levels[key] = (min(capacity, level - amount), time.monotonic())
        return 0.0

    def level(self, key: str, *, capacity: float, per_seconds: float) -> float:
        """What is in the bucket now."""
        now = time.monotonic()
        level, filled_at = self._levels.get(key, (capacity, now))
        return min(capacity, level + (now - filled_at) * capacity / per_seconds)
