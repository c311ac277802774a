"""Every open case is proved by tests that exist, and the table of cases is whole."""

from __future__ import annotations

import pytest

from tests.cases.index import CASES, exists, proofs_by_case

PROVED = proofs_by_case()


def test_the_table_has_every_case_once() -> None:
    assert len(CASES) == len(set(CASES)) == 37


@pytest.mark.parametrize("case", CASES)
def test_the_case_is_proved(case: str) -> None:
    assert PROVED.get(case), f"no test names case {case}"
    assert [test for test in PROVED[case] if not exists(test)] == []


def test_no_test_names_a_case_that_is_none() -> None:
    assert set(PROVED) <= set(CASES)
