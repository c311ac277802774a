"""The fault tables: fault x wire x provider, and fault x wire -> what the client saw. `make faults` has them whole."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from tests.contract.wires import ENTRIES as WIRES
from tests.faults import downstream, upstream
from tests.faults.cells import grids, wrong
from tests.faults.proxy import Fault
from tests.faults.written import write_section
from tests.running import running

WHOLE = bool(os.environ.get("POLYWIRE_FAULTS"))
UNCOUNTED = ("replicate",)
"""Predictions that belong to the service: a reader that leaves ends nothing."""


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
        write_section("Between Polywire and its providers", grids(cells), len(cells), time.perf_counter() - began)


@pytest.mark.timeout(300 if WHOLE else 120)
async def test_a_client_that_is_cut_off_never_sees_success(tmp_path: Path) -> None:
    """A cut answer is no answer on any wire, and Polywire lets the provider go and counts nothing as finished."""
    began = time.perf_counter()
    cells = []
    starting = running(tmp_path, downstream.config(tmp_path), grpc=True)
    service = await asyncio.to_thread(starting.__enter__)
    try:
        for fault in Fault:
            cells += await downstream.fill(service, fault, WIRES)
        assert not (bad := wrong(cells)), bad
        assert service.log.read_text().count("Traceback") == 0
    finally:
        await asyncio.to_thread(starting.__exit__, None, None, None)
    if WHOLE:
        write_section("Between clients and Polywire", grids(cells), len(cells), time.perf_counter() - began)
