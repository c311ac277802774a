"""Whole answers: what the routes of this wire give to a client that does not stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from gateway.catalog import Gateway
from gateway.completion import Completion, collect
from gateway.errors import GatewayError
from gateway.events import StreamEvent
from gateway.request import ChatRequest
from wires.openai.errors import WIRE


async def whole_chat(gateway: Gateway, request: ChatRequest) -> Completion:
    """The answer to `request`. Raises GatewayError, not retryable once the provider has begun."""
    async with gateway.chat(request, wire=WIRE.name) as events:
        return await whole(events)


async def whole(events: AsyncIterator[StreamEvent]) -> Completion:
    """A stream that has begun, folded. Raises GatewayError, never retryable."""
    with billed():
        return await collect(events)


@contextmanager
def billed() -> Iterator[None]:
    """What fails in here has cost its provider work already: openai's SDKs must not ask for it three times."""
    try:
        yield
    except GatewayError as error:
        error.retryable = False
        raise
