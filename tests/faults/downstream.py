"""Faults between clients and Polywire: every wire's client behind a proxy, before a provider that takes its time.

A client that was cut off never takes what it has for the whole answer, and Polywire counts no such stream as finished.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from websockets.exceptions import WebSocketException

from tests.contract.scenario import PIECES
from tests.contract.wire_clients import clients
from tests.contract.wire_entry import WireEntry
from tests.contract.wires import ENTRIES as WIRES
from tests.faults.cells import IDLE_SECONDS, Cell, judged
from tests.faults.proxy import Fault, proxy
from tests.running import Service

CLIENT = "client"
OWNED = "replicate"
"""The wire whose streams belong to the service: a reader that leaves ends nothing."""
SHORT, LONG = "short", "long"
LEFT = "error: nothing came any more, and the client left"


def config(folder: Path) -> dict[str, Any]:
    """A service with a short answer, and a long one that begins alike."""
    pieces = [{"text": piece} for piece in PIECES]
    more = [step for _ in range(400) for step in ({"delay": 0.05}, {"text": " and so on"})]
    end = {"finish": "stop", "usage": {"input_tokens": 9, "output_tokens": 3}}
    script = folder / "script.yaml"
    script.write_text(yaml.safe_dump({SHORT: [*pieces, end], LONG: [*pieces, *more, end]}), encoding="utf-8")
    models = [{"id": name, "provider": "script", "upstream": name} for name in (SHORT, LONG)]
    return {
        "providers": [{"name": "script", "type": "scripted", "path": str(script)}],
        "models": models,
        "limits": {"drain_seconds": 0},
    }


def counted(service: Service) -> tuple[int, int]:
    """The finished streams and those at work, on the wires whose streams end with their readers."""

    def total(metric: str, **labels: str) -> int:
        return int(service.metric(metric, **labels) - service.metric(metric, wire=OWNED, **labels))

    return total("polywire_streams_total", outcome="finished"), total("polywire_streams_open")


async def fill(service: Service, fault: Fault, wires: Sequence[WireEntry] = WIRES) -> list[Cell]:
    """Ask every wire at the same time, each client behind a proxy of its own."""
    return list(await asyncio.gather(*(_ask(service, fault, wire) for wire in wires)))


async def _ask(service: Service, fault: Fault, wire: WireEntry) -> Cell:
    model = SHORT if fault.harmless else LONG
    async with proxy(service.url, fault) as http, proxy(f"http://127.0.0.1:{service.grpc_port}", fault) as grpc:
        behind = replace(service, port=http.port, grpc_port=grpc.port)
        async with clients(behind, compressed=False) as opened:
            began = time.perf_counter()
            try:
                async with asyncio.timeout(None if fault.harmless else IDLE_SECONDS):
                    raw = await wire.ask(opened, model, "hi")
            except TimeoutError:
                saw, text = LEFT, ""
            except (aiohttp.ClientError, WebSocketException, OSError) as error:
                saw, text = f"error: {type(error).__name__}", ""
            else:
                saw, text = _judged(wire, raw)
            return Cell(fault, wire.name, CLIENT, saw, text, time.perf_counter() - began)


def _judged(wire: WireEntry, raw: Any) -> tuple[str, str]:
    try:
        saw, text = judged(wire, raw)
    except (AssertionError, ValueError, KeyError, IndexError) as error:
        # What was cut is not what the wire's protocol lets end.
        return f"error: {type(error).__name__} in what came", ""
    return (f"error: {saw}" if saw == "no end" else saw), text
