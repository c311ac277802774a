"""Faults between Polywire and its providers: every provider's fake behind one proxy per fault, asked on every wire.

`scripted` has no network to break. `local` has one child for all, so its one proxy takes the faults in turn.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from gateway.config import LocalSettings
from tests.contract.entry import CANARY, CANARY_ENV, ProviderEntry
from tests.contract.local_entry import living_child
from tests.contract.openai_entry import routes as openai_routes
from tests.contract.providers import ENTRIES as PROVIDERS
from tests.contract.scenario import Scenario
from tests.contract.wire_clients import Clients, clients
from tests.contract.wire_entry import WireEntry
from tests.contract.wires import ENTRIES as WIRES
from tests.faults.cells import IDLE_SECONDS, Cell, judged
from tests.faults.proxy import Fault, Proxy, proxy
from tests.local_fixtures import temporary_folder
from tests.opensearch.cluster import ML, OPENAI, openai_connector
from tests.running import Service, running
from tests.upstreams.byte_server import ByteServer

ROWS = tuple(entry for entry in PROVIDERS if entry.row is not None and entry.routes is not None)
LOCAL, CONNECTOR = "local", "connector"
NAMES = (*(entry.name for entry in ROWS), LOCAL, CONNECTOR)
AT_ONCE = 12
"""How many questions are asked at the same time."""
AWS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_EC2_METADATA_DISABLED": "true"}
CellAsked = tuple[WireEntry, str]


@dataclass(slots=True)
class Faulty:
    """The service, the model of each provider behind each fault, and the embedded model's proxy."""

    service: Service
    local: Proxy
    models: dict[tuple[str, Fault], str] = field(default_factory=dict)


@asynccontextmanager
async def faulty_service(faults: Sequence[Fault]) -> AsyncIterator[Faulty]:
    """The service whose every provider is behind a proxy for each of `faults`."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        models: dict[tuple[str, Fault], str] = {}
        rows: list[dict[str, Any]] = []
        described: list[dict[str, Any]] = []
        for entry in ROWS:
            for fault in faults:
                models[entry.name, fault] = name = f"{entry.name}-{fault.name.lower()}".replace("_", "-")
                row = await _behind(stack, entry, fault)
                rows.append({**row, "name": name})
                dialect = {"dialect": row["dialect"]} if "dialect" in row else {}
                described.append({"id": name, "provider": name, "upstream": entry.model, **dialect})
        weights = folder / "model.gguf"
        weights.write_bytes(b"GGUF")
        config = {
            "providers": [*rows, {"name": LOCAL, "type": "local"}],
            "models": [*described, {"id": LOCAL, "provider": LOCAL, "upstream": "chat"}],
            "limits": {"idle_seconds": IDLE_SECONDS, "first_event_seconds": IDLE_SECONDS},
            "local": {"gguf": str(weights)},
            "connectors": {"trusted_endpoints": [r"^http://127\.0\.0\.1:\d+/.*$"]},
        }
        local = await _openai_fake(stack, Fault.NONE)
        environment = {CANARY_ENV: CANARY, "CONTRACT_USER": "u", "TMPDIR": str(folder), **AWS}
        with temporary_folder(folder), living_child(folder, LocalSettings(gguf=weights), local.url):
            starting = running(folder, config, environment=environment, grpc=True)
            # The fakes live in this loop, so the service is started and stopped beside it.
            service = await asyncio.to_thread(starting.__enter__)
            try:
                models |= {(LOCAL, fault): LOCAL for fault in faults}
                models |= {(CONNECTOR, fault): await _registered(stack, service, fault) for fault in faults}
                yield Faulty(service, local, models)
            finally:
                await asyncio.to_thread(starting.__exit__, None, None, None)


async def _behind(stack: AsyncExitStack, entry: ProviderEntry, fault: Fault) -> dict[str, Any]:
    """The row of a provider behind a proxy."""
    assert entry.row is not None
    assert entry.routes is not None
    server = await stack.enter_async_context(ByteServer({}))
    between = await stack.enter_async_context(proxy(server.url, fault))
    # An answer may name a URL, which has to lead through the proxy as well.
    server.routes.update(entry.routes(Scenario(), between.url))
    row = entry.row(between.url).model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    return {**row, "retries": 0}


async def _openai_fake(stack: AsyncExitStack, fault: Fault) -> Proxy:
    server = await stack.enter_async_context(ByteServer(openai_routes(Scenario(), "")))
    return await stack.enter_async_context(proxy(server.url, fault))


async def _registered(stack: AsyncExitStack, service: Service, fault: Fault) -> str:
    """The id of a model that is registered over ML Commons, with a connector through a proxy."""
    between = await _openai_fake(stack, fault)
    action = {"request_body": '{"messages": [{"role": "user", "content": "${parameters.inputs}"}]}'}
    connector = openai_connector(between.url, parameters={"_llm_interface": OPENAI}, action=action)
    async with aiohttp.ClientSession(service.url) as http:
        async with http.post(f"{ML}/connectors/_create", json=connector) as made:
            body = {"name": "m", "function_name": "remote", "connector_id": (await made.json())["connector_id"]}
        async with http.post(f"{ML}/models/_register?deploy=true", json=body) as registered:
            return str((await registered.json())["model_id"])


async def fill(faulty: Faulty, fault: Fault, asked: Iterable[CellAsked]) -> list[Cell]:
    """Ask every wire for a provider behind `fault`, several at a time."""
    faulty.local.change(fault)
    free: asyncio.Queue[Clients] = asyncio.Queue()
    async with AsyncExitStack() as stack:
        for _ in range(AT_ONCE):
            free.put_nowait(await stack.enter_async_context(clients(faulty.service)))

        async def one(wire: WireEntry, provider: str) -> Cell:
            opened = await free.get()
            try:
                return await _ask(opened, fault, wire, provider, faulty.models[provider, fault])
            finally:
                free.put_nowait(opened)

        return list(await asyncio.gather(*(one(*cell) for cell in asked)))


async def _ask(opened: Clients, fault: Fault, wire: WireEntry, provider: str, model: str) -> Cell:
    began = time.perf_counter()
    try:
        raw = await wire.ask(opened, model, "hi")
    except aiohttp.ClientOSError:
        # The connection was kept from an earlier question and let go by the service while this one was sent.
        raw = await wire.ask(opened, model, "hi")
    seconds = time.perf_counter() - began
    saw, text = judged(wire, raw)
    return Cell(fault, wire.name, provider, saw, text, seconds)


def every_cell() -> list[CellAsked]:
    return [(wire, provider) for wire in WIRES for provider in NAMES]


def some_cells(fault: Fault) -> list[CellAsked]:
    """Over all faults, each fault meets every wire, every wire every provider, and every provider every fault."""
    turn = list(Fault).index(fault)
    return [(wire, NAMES[(turn + column) % len(NAMES)]) for column, wire in enumerate(WIRES)]
