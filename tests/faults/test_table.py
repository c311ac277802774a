"""The fault tables: fault x wire x provider, and fault x wire -> what the client saw. `make faults` has them whole."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from tests.contract.wires import ENTRIES as WIRES
from tests.faults import downstream, sounds, upstream
from tests.faults.cells import across, grids, wrong
from tests.faults.proxy import Fault
from tests.faults.written import write_section
from tests.running import running

WHOLE = bool(os.environ.get("POLYWIRE_FAULTS"))
CANCEL_SECONDS = 2.0
FAULTS = tuple(Fault) if WHOLE else (Fault.ONE_BYTE, Fault.STALL, Fault.CUT, Fault.RESET_AT_ONCE)
"""Of the smaller tables; that of the chat providers has every fault in any case."""


@pytest.mark.timeout(900 if WHOLE else 120)
async def test_no_fault_of_a_provider_is_taken_for_success() -> None:
    """Cases R1, R2, E1: cut, reset, stalled and refused answers are errors; delayed and cut-up ones are whole."""
    began = time.perf_counter()
    cells = []
    async with upstream.faulty_service(list(Fault)) as faulty:
        for fault in Fault:
            asked = upstream.every_cell() if WHOLE else upstream.some_cells(fault)
            cells += await upstream.fill(faulty, fault, asked)
        assert not (bad := wrong(cells)), bad
        assert faulty.service.log.read_text().count("Traceback") == 0
    if WHOLE:
        write_section("Between Polywire and its providers", cells, grids(cells), time.perf_counter() - began)


@pytest.mark.timeout(300 if WHOLE else 120)
async def test_no_fault_of_a_voice_is_taken_for_success() -> None:
    """What was cut is not played as whole, and a transcript is not taken for all that was said."""
    began = time.perf_counter()
    cells = []
    async with sounds.sounding_service(FAULTS) as service:
        for fault in FAULTS:
            cells += await sounds.fill(service, fault)
        assert not (bad := wrong(cells)), bad
        assert service.log.read_text().count("Traceback") == 0
    if WHOLE:
        title = "Between Polywire and what speaks or listens"
        write_section(title, cells, grids(cells), time.perf_counter() - began)


@pytest.mark.timeout(300 if WHOLE else 120)
async def test_a_client_that_is_cut_off_never_sees_success(tmp_path: Path) -> None:
    """A cut answer is no answer on any wire, and Polywire lets the provider go and counts nothing as finished."""
    began = time.perf_counter()
    cells = []
    starting = running(tmp_path, downstream.config(tmp_path), grpc=True)
    service = await asyncio.to_thread(starting.__enter__)
    try:
        for fault in FAULTS:
            finished, _ = downstream.counted(service)
            cells += await downstream.fill(service, fault, WIRES)
            async with asyncio.timeout(CANCEL_SECONDS):
                while not fault.harmless and downstream.counted(service) != (finished, 0):  # noqa: ASYNC110 - nothing tells
                    await asyncio.sleep(0.05)
        assert not (bad := wrong(cells)), bad
        assert service.log.read_text().count("Traceback") == 0
    finally:
        await asyncio.to_thread(starting.__exit__, None, None, None)
    if WHOLE:
        write_section("Between clients and Polywire", cells, across(cells), time.perf_counter() - began)
