"""llm-katan, an OpenAI-compatible server of other people, with its echo in place of a model."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.error import URLError
from urllib.request import urlopen

from tests.running import free_port

KEY = "sk-canary-katan-0123456789"
START_SECONDS = 30.0


@contextmanager
def katan_server() -> Iterator[str]:
    """The base URL of a running server that checks its key."""
    port = free_port()
    command = [sys.executable, "-m", "llm_katan.cli", "--model", "echo", "--backend", "echo", "--providers", "openai"]
    # Without --host it would listen on every interface.
    command += ["--host", "127.0.0.1", "--port", str(port), "--validate-keys", "--api-keys", f"openai={KEY}"]
    with tempfile.TemporaryDirectory() as folder:
        command += ["--stats-file", f"{folder}/stats.json"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                _wait_until_ready(f"http://127.0.0.1:{port}/health", process)
                yield f"http://127.0.0.1:{port}/v1"
            finally:
                process.kill()


def _wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urlopen(url, timeout=5):  # noqa: S310 - loopback
                return
        except (URLError, OSError):
            time.sleep(0.05)
    raise RuntimeError("llm-katan did not start")
