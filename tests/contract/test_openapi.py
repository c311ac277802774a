"""The OpenAPI document tells the truth about every route: schemathesis finds no answer that it does not declare."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import scripted_config
from tests.running import Service, running

# A schema cannot say what a model cannot do, so a valid body may be refused.
OURS = ("--exclude-checks", "positive_data_acceptance")
V1 = ("--include-path-regex", "^/v1/", *OURS)
OTHERS = ("--exclude-path-regex", "^/(v1/|generate$)", *OURS)
# BentoML writes this operation itself, without the nulls that it takes and with one media type where there are two.
BENTOML = ("--include-path", "/generate", "--checks", "not_a_server_error,status_code_conformance")


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service of its own, which may be filled with whatever a generated request makes."""
    with running(tmp_path_factory.mktemp("probed"), scripted_config()) as started:
        yield started


@pytest.mark.timeout(240)
@pytest.mark.parametrize("operations", [V1, OTHERS, BENTOML], ids=["v1", "others", "bentoml's"])
def test_every_answer_is_one_that_the_document_declares(
    probed: Service, tmp_path: Path, operations: tuple[str, ...]
) -> None:
    command = [str(Path(sys.executable).with_name("schemathesis")), "run", f"{probed.url}/docs.json"]
    options = ["--phases", "examples,coverage", "--seed", "1", "--no-color"]
    done = subprocess.run(
        [*command, *options, *operations], cwd=tmp_path, capture_output=True, text=True, timeout=220, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr
    assert " passed" in done.stdout
