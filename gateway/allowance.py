"""What each key, and all keys together, may use in a minute: requests and tokens.

A stream's tokens are reserved by estimate before it begins and settled when it has ended, so that streams at the same
time cannot use the same tokens. Counts are exact; with several workers or replicas they are kept in the shared store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from gateway.buckets import Buckets, LocalBuckets, several_count
from gateway.config import Settings
from gateway.errors import RateLimited
from gateway.events import Finished
from gateway.request import ChatRequest, Text
from gateway.telemetry import Meter, current_request

MINUTE = 60.0
CHARACTERS_PER_TOKEN = 4
ALL = "all"


@dataclass(frozen=True, slots=True)
class Standing:
    """How much of one limit is left; `remaining` is None where only the shared store knows."""

    limit: int
    remaining: int | None
    reset_seconds: float | None


class Allowance:
    """The limits per minute of one configuration."""

    def __init__(self, settings: Settings, shared: object = None) -> None:
        limits = settings.limits
        self._local = LocalBuckets()
        self._buckets: Buckets = self._local
        if several_count(settings) and isinstance(shared, Buckets):
            self._buckets = shared
        self._limits = {
            "requests": (limits.requests_per_minute, limits.all_requests_per_minute),
            "tokens": (limits.tokens_per_minute, limits.all_tokens_per_minute),
            "handshakes": (limits.handshakes_per_minute, None),
        }

    async def request(self, owner: str) -> None:
        """Count one request. Raises RateLimited."""
        await self._take("requests", owner, 1)

    async def handshake(self, owner: str) -> None:
        """Count one WebSocket handshake. Raises RateLimited."""
        await self._take("handshakes", owner, 1)

    def stream(self, owner: str, estimate: int) -> Bill:
        """An `async with` block that reserves a stream's tokens and settles them by what its meter saw.

        Entering it raises RateLimited.
        """
        return Bill(self, owner, estimate)

    async def reserve(self, owner: str, estimate: int) -> bool:
        """Whether there is something to settle.

        A stream that is not the first of an HTTP request counts as a request of its own: a turn of a socket, a call.
        """
        scope = current_request.get()
        if scope is None or not scope.counted:
            await self.request(owner)
        return await self._take("tokens", owner, estimate)

    def standing(self, name: str, owner: str) -> Standing | None:
        """How `owner` stands with "requests" or "tokens"; None where no limit applies."""
        each, _ = self._limits[name]
        if each is None:
            return None
        if self._buckets is not self._local:
            return Standing(each, None, None)
        level = self._local.level(f"{name}:{owner}", capacity=each, per_seconds=MINUTE)
        return Standing(each, int(level), (each - level) * MINUTE / each)

    async def _take(self, name: str, owner: str, amount: int) -> bool:
        """Whether a limit applied. Takes from both buckets or from none."""
        each, everyone = self._limits[name]
        if each is not None:
            amount_each = min(amount, each)
            wait = await self._buckets.take(f"{name}:{owner}", amount_each, capacity=each, per_seconds=MINUTE)
            _demand(wait, f"This key may use {each} {name} per minute")
        if everyone is not None:
            wait = await self._buckets.take(
                f"{name}:{ALL}", min(amount, everyone), capacity=everyone, per_seconds=MINUTE
            )
            if wait and each is not None:
                await self._buckets.take(f"{name}:{owner}", -min(amount, each), capacity=each, per_seconds=MINUTE)
            _demand(wait, f"This service takes {everyone} {name} per minute")
        return each is not None or everyone is not None

    async def settle(self, owner: str, difference: int) -> None:
        """Put back what was reserved and not used, or take what was used beyond it, as far as it is there."""
        each, everyone = self._limits["tokens"]
        for key, capacity in ((owner, each), (ALL, everyone)):
            if capacity is None or difference == 0:
                continue
            wait = await self._buckets.take(f"tokens:{key}", difference, capacity=capacity, per_seconds=MINUTE)
            rest = difference - wait * capacity / MINUTE
            if wait and rest > 0:
                await self._buckets.take(f"tokens:{key}", rest, capacity=capacity, per_seconds=MINUTE)


class Bill:
    """What one stream used; the stream's owner puts its meter here."""

    def __init__(self, allowance: Allowance, owner: str, estimate: int) -> None:
        self.meter: Meter | None = None
        self._allowance = allowance
        self._owner = owner
        self._estimate = estimate
        self._reserved = False

    async def __aenter__(self) -> Self:
        self._reserved = await self._allowance.reserve(self._owner, self._estimate)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._reserved:
            await self._allowance.settle(self._owner, self._tokens() - self._estimate)

    def _tokens(self) -> int:
        """The tokens that the provider counted; the estimate where it did not count."""
        terminal = self.meter.terminal if self.meter is not None else None
        if isinstance(terminal, Finished) and terminal.usage is not None:
            return terminal.usage.input_tokens + terminal.usage.output_tokens or self._estimate
        return self._estimate


def estimate(request: ChatRequest) -> int:
    """How many tokens `request` may use: its text by length, and the answer that it allows."""
    size = sum(len(part.text) for message in request.messages for part in message.parts if isinstance(part, Text))
    return max(1, size // CHARACTERS_PER_TOKEN) + (request.sampling.max_tokens or 0)


def _demand(wait: float, sentence: str) -> None:
    if wait:
        raise RateLimited(f"{sentence}; try again in {max(1, round(wait))} s.", retry_after=wait)
