"""The scripted provider in the contract suite: it has no upstream, so its script does what an upstream would do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from adapters.scripted import ScriptedChat, Silence, Step
from gateway.config import ProviderRow, Settings
from gateway.errors import GatewayError, Truncated, UpstreamError, error_class
from gateway.events import (
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
)
from tests.contract.entry import MODEL, STATUSES, ProviderEntry, Running
from tests.contract.scenario import Refusal, Scenario
from tests.upstreams.byte_server import Act


class _Script:
    """The steps of one scenario, whose refusals are used up one after the other."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._refusals = list(scenario.refusals)

    def __iter__(self) -> Iterator[Step]:
        if self._refusals:
            return iter([_refused(self._refusals.pop(0))])
        return _steps(self._scenario)


def _steps(scenario: Scenario) -> Iterator[Step]:
    yield from (ReasoningDelta(text) for text in scenario.reasoning)
    shown = scenario.pieces if scenario.then is None else scenario.pieces[: scenario.pieces_before]
    for piece in shown:
        yield float(scenario.pause)
        yield TextDelta(piece)
    for index, call in enumerate(scenario.calls):
        yield ToolCallStart(index, call.call_id, call.name)
        yield ToolCallDelta(index, call.arguments)
    match scenario.then:
        case None:
            yield Finished(scenario.reason, scenario.usage)
        case Act.HANG:
            yield Silence.FOR_EVER
        case bytes():
            yield UpstreamError("The upstream reported an error.")
        case _:
            yield Truncated("The upstream broke off.")


def _refused(refusal: Refusal) -> GatewayError:
    wait = refusal.headers.get("retry-after")
    return error_class(STATUSES[refusal.status])(
        f"The upstream answered {refusal.status}.",
        retry_after=float(wait) if wait else None,
    )


@asynccontextmanager
async def _start(scenario: Scenario) -> AsyncIterator[Running]:
    row = ProviderRow(name="script", type="scripted")
    provider = ScriptedChat(row, Settings(), {MODEL: _Script(scenario)})

    async def begun() -> None:
        await asyncio.sleep(0)

    async def left() -> None:
        assert provider.closed == provider.opened

    yield Running(provider, MODEL, begun, left)


ENTRY = ProviderEntry("scripted", _start, able=frozenset({"reasoning", "tools"}))
