"""The table fault x wire x provider -> what the client saw, and within what time. `make faults` prints it whole.

Every provider's fake stands behind one proxy per fault; every wire asks for each of them through the running service.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from tests.contract.entry import CANARY, CANARY_ENV, ProviderEntry
from tests.contract.providers import ENTRIES as PROVIDERS
from tests.contract.scenario import PIECES, Scenario
from tests.contract.wire_clients import Clients, clients
from tests.contract.wire_entry import ERROR, WireEntry
from tests.contract.wires import ENTRIES as WIRES
from tests.faults.proxy import Fault, proxy
from tests.running import Service, running
from tests.upstreams.byte_server import ByteServer

REACHED = tuple(entry for entry in PROVIDERS if entry.row is not None and entry.routes is not None)
TEXT = "".join(PIECES)
IDLE_SECONDS = 3.0
LATEST_SECONDS = 4 * IDLE_SECONDS
AT_ONCE = 4
"""How many questions are asked at the same time."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What one client saw."""

    fault: Fault
    wire: str
    provider: str
    saw: str
    text: str
    seconds: float

    @property
    def right(self) -> bool:
        """Whole and a success where nothing was lost; else an error in time, and no text that was never said."""
        if self.fault.harmless:
            return self.saw == "success" and self.text == TEXT
        failed = self.saw.startswith(("error", "refused"))
        return failed and TEXT.startswith(self.text) and self.seconds < LATEST_SECONDS


def model_id(provider: str, fault: Fault) -> str:
    return f"{provider}-{fault.name.lower()}".replace(" ", "-")


@asynccontextmanager
async def faulty_service(faults: Sequence[Fault]) -> AsyncIterator[Service]:
    """The service whose every provider is behind a proxy for each of `faults`."""
    async with AsyncExitStack() as stack:
        rows: list[dict[str, Any]] = []
        models: list[dict[str, Any]] = []
        for entry in REACHED:
            for fault in faults:
                row, upstream = await _behind(stack, entry, fault)
                name = model_id(entry.name, fault)
                rows.append({**row, "name": name})
                dialect = {"dialect": row["dialect"]} if "dialect" in row else {}
                model = {"provider": name, "upstream": upstream, **dialect}
                models += [{**model, "id": name}, {**model, "id": f"test/{name}"}]
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        limits = {"idle_seconds": IDLE_SECONDS, "first_event_seconds": IDLE_SECONDS}
        config = {"providers": rows, "models": models, "limits": limits}
        starting = running(folder, config, environment={CANARY_ENV: CANARY, **AWS}, grpc=True)
        # The fakes live in this loop, so the service is started and stopped beside it.
        service = await asyncio.to_thread(starting.__enter__)
        try:
            await _build_all(service, faults)
            yield service
        finally:
            await asyncio.to_thread(starting.__exit__, None, None, None)


async def _build_all(service: Service, faults: Sequence[Fault]) -> None:
    """Have every provider built before a question is timed."""
    async with clients(service) as opened:
        for fault in faults:
            await asyncio.gather(*(WIRES[0].ask(opened, model_id(entry.name, fault), "hi") for entry in REACHED))


AWS = {
    "CONTRACT_USER": "u",
    "AWS_ACCESS_KEY_ID": "a",
    "AWS_SECRET_ACCESS_KEY": "b",
    "AWS_EC2_METADATA_DISABLED": "true",
}


async def _behind(stack: AsyncExitStack, entry: ProviderEntry, fault: Fault) -> tuple[dict[str, Any], str]:
    """The row of a provider behind a proxy, and the id of its model."""
    assert entry.row is not None
    assert entry.routes is not None
    server = await stack.enter_async_context(ByteServer({}))
    between = await stack.enter_async_context(proxy(server.url, fault))
    # An answer may name a URL, which has to lead through the proxy as well.
    server.routes.update(entry.routes(Scenario(), between.url))
    row = entry.row(between.url).model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    return {**row, "retries": 0}, entry.model


async def fill(service: Service, cells: Iterable[tuple[Fault, WireEntry, ProviderEntry]]) -> list[Cell]:
    """Ask for every cell, several at a time."""
    room = asyncio.Semaphore(AT_ONCE)
    async with clients(service) as opened:

        async def one(fault: Fault, wire: WireEntry, provider: ProviderEntry) -> Cell:
            async with room:
                return await _ask(opened, fault, wire, provider)

        return list(await asyncio.gather(*(one(*cell) for cell in cells)))


async def _ask(opened: Clients, fault: Fault, wire: WireEntry, provider: ProviderEntry) -> Cell:
    began = time.perf_counter()
    try:
        raw = await wire.ask(opened, model_id(provider.name, fault), "hi")
    except aiohttp.ClientOSError:
        # The connection was kept from an earlier question and let go by the service while this one was sent.
        raw = await wire.ask(opened, model_id(provider.name, fault), "hi")
    seconds = time.perf_counter() - began
    if raw.status >= 400:
        return Cell(fault, wire.name, provider.name, f"refused {raw.status}", "", seconds)
    answer = wire.read(raw)
    saw = "success" if answer.ends else "nothing"
    if ERROR in answer.ends:
        saw = f"error: {answer.error or 'a broken body'}"
    return Cell(fault, wire.name, provider.name, saw, answer.text, seconds)


def every_cell(faults: Sequence[Fault]) -> list[tuple[Fault, WireEntry, ProviderEntry]]:
    return [(fault, wire, provider) for fault in faults for wire in WIRES for provider in REACHED]


def some_cells(faults: Sequence[Fault]) -> list[tuple[Fault, WireEntry, ProviderEntry]]:
    """Every fault meets every wire, every wire meets every provider, and every provider every fault."""
    return [
        (fault, wire, REACHED[(row + column) % len(REACHED)])
        for row, fault in enumerate(faults)
        for column, wire in enumerate(WIRES)
    ]


def written(cells: Iterable[Cell]) -> str:
    """The table as text: one line per fault and provider, what each wire's client saw."""
    lines = ["fault | provider | wire | saw | seconds", "--- | --- | --- | --- | ---"]
    lines += [f"{cell.fault.value} | {cell.provider} | {cell.wire} | {cell.saw} | {cell.seconds:.2f}" for cell in cells]
    return "\n".join(lines)
