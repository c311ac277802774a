"""The fault table, short: every fault on every wire, the providers taking turns. `make faults` has it whole."""

from __future__ import annotations

import os

import pytest

from tests.faults.proxy import Fault
from tests.faults.table import every_cell, faulty_service, fill, some_cells, written

WHOLE = bool(os.environ.get("POLYWIRE_FAULTS"))


@pytest.mark.timeout(900 if WHOLE else 120)
async def test_no_fault_is_taken_for_success(capsys: pytest.CaptureFixture[str]) -> None:
    """Cases R1, R2, E1: cut, reset, stalled and refused answers are errors; delayed and cut-up ones are whole."""
    faults = list(Fault)
    async with faulty_service(faults) as service:
        cells = await fill(service, every_cell(faults) if WHOLE else some_cells(faults))
        with capsys.disabled():
            if WHOLE:
                print(written(cells))  # noqa: T201 - the table is what is asked for
        wrong = [cell for cell in cells if not cell.right]
        assert not wrong, written(wrong)
        assert service.log.read_text().count("Traceback") == 0
