"""The OpenAPI document tells the truth about the OpenAI routes: schemathesis finds no answer that it does not say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.running import Service

ROUTES = r"^/v1/(models|models/\{model_id\}|chat/.*|completions|responses.*|audio/.*)$"


def test_every_answer_is_one_that_the_document_declares(guarded: Service, tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("schemathesis")), "run", f"{guarded.url}/openapi.json"]
    options = ["--include-path-regex", ROUTES, "--phases", "examples,coverage", "--seed", "1"]
    # A schema cannot say what a model cannot do, so a valid body may be refused.
    checks = ["--exclude-checks", "positive_data_acceptance", "--no-color"]
    key = ["-H", f"Authorization: {guarded.headers['authorization']}"]
    done = subprocess.run(
        [*command, *options, *checks, *key], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr
    assert " passed" in done.stdout
