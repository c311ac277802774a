"""`/metrics` over several workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.exposition import exposition

OPENS_A_STREAM = """
from gateway.telemetry import OPEN, STREAMS
OPEN.labels("ws").inc()
STREAMS.labels("ws", "local", "finished").inc()
print("open", flush=True)
input()
"""


def test_a_dead_workers_open_streams_are_forgotten_and_its_counts_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    worker = subprocess.Popen(
        [sys.executable, "-c", OPENS_A_STREAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(os.environ)
    )
    with worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"open\n"
        assert b'polywire_streams_open{wire="ws"} 1.0' in exposition()
        worker.kill()
        worker.wait()
    text = exposition()
    assert b"polywire_streams_open{" not in text
    assert b'polywire_streams_total{outcome="finished",provider="local",wire="ws"} 1.0' in text
