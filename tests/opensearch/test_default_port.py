"""The wire at OpenSearch's usual port, where clients look for a cluster unless they are told otherwise."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from opensearchpy import OpenSearch

from tests.conftest import scripted_config
from tests.running import ROOT, is_open, running

USUAL = 9200


def test_opensearch_py_finds_it_at_its_usual_port(tmp_path: Path) -> None:
    if is_open(USUAL):
        pytest.skip(f"something listens at port {USUAL}; stop it")
    with running(tmp_path, scripted_config(), port=USUAL), OpenSearch() as client:
        asked = {"parameters": {"messages": [{"role": "user", "content": "hi"}]}}
        answer = client.plugins.ml.predict_model(model_id="hello", body=asked)
    completion = answer["inference_results"][0]["output"][0]["dataAsMap"]
    assert completion["choices"][0]["message"]["content"] == "Hello 안녕하세요 👋🏽"


def test_make_serve_takes_the_port() -> None:
    command = ["make", "--dry-run", "--old-file=.venv/.serve", "serve", f"PORT={USUAL}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert f"--port {USUAL} " in done.stdout
