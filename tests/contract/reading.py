"""How the contract suite reads a provider: through `open_stream`, as the gateway does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from gateway.errors import GatewayError
from gateway.events import Failed, Finished, StreamEvent, TextDelta
from gateway.patience import Patience
from gateway.request import ChatRequest, Role, text_message
from gateway.streams import EventStream, open_stream
from gateway.telemetry import Meter
from tests.contract.entry import MODEL, Running
from tests.contract.providers import ENTRIES

QUESTION = (text_message(Role.USER, "Say hello."),)
PATIENCE = Patience(first_event=30, idle=30)
SOON = 0.1
"""Seconds in which an upstream must be let go."""

every = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)


def able(*words: str) -> pytest.MarkDecorator:
    """The entries that can show all of `words`."""
    chosen = [entry for entry in ENTRIES if entry.able.issuperset(words)]
    return pytest.mark.parametrize("entry", chosen, ids=lambda entry: entry.name)


with_row = pytest.mark.parametrize(
    "entry", [entry for entry in ENTRIES if entry.row is not None], ids=lambda entry: entry.name
)


@asynccontextmanager
async def opened(running: Running, patience: Patience = PATIENCE) -> AsyncIterator[EventStream[Any]]:
    provider, request = running.provider, ChatRequest(running.model, QUESTION)
    meter = Meter("test", MODEL, provider.name)
    async with open_stream(lambda: provider.stream(request), model=MODEL, meter=meter, patience=patience) as events:
        yield events


@dataclass
class Outcome:
    """What a reader got."""

    events: list[StreamEvent] = field(default_factory=list)
    error: GatewayError | None = None

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))

    @property
    def finished(self) -> Finished | None:
        return next((event for event in self.events if isinstance(event, Finished)), None)


async def outcome(running: Running, patience: Patience = PATIENCE) -> Outcome:
    """Everything that a reader gets, the refusal of `open_stream` included."""
    got = Outcome()
    try:
        async with opened(running, patience) as events:
            async for event in events:
                got.events.append(event)
    except GatewayError as error:
        got.error = error
    if got.events and isinstance(got.events[-1], Failed):
        got.error = got.events[-1].error
    return got
