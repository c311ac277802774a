"""A genuine Cog server as a child process, with the model of `cog_model/`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from benchmarks.load import free_port

MODEL = Path(__file__).parent / "cog_model"
START_SECONDS = 30


@contextmanager
def cog_server(model: Path = MODEL) -> Iterator[str]:
    """The base_url of a server that is ready. It runs one prediction at a time."""
    port = free_port()
    environment = {
        **os.environ,
        # The server spawns `python` by name.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COG_PREDICT_TYPE_STUB": "run.py:Runner",
        "PORT": str(port),
    }
    command = [sys.executable, "-m", "cog.server.http", "--host", "127.0.0.1"]
    process = subprocess.Popen(
        command, cwd=model, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_ready(url, process)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def health(url: str) -> str:
    """`READY` or `BUSY`; `STARTING` also while nobody listens yet."""
    try:
        with urlopen(f"{url}/health-check") as answer:  # noqa: S310 - a loopback URL of our own
            return str(json.load(answer)["status"])
    except OSError:
        return "STARTING"


def _wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while health(url) != "READY":
        if time.monotonic() > deadline or process.poll() is not None:
            raise RuntimeError(f"the Cog server did not become ready (exit code {process.poll()})")
        time.sleep(0.05)
