"""Starts the real service, `bentoml serve service:Polywire`, on a free loopback port for tests that need it."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import psutil
import yaml

from benchmarks.load import free_port
from tests.canaries import SEARCH

__all__ = ["Service", "free_port", "is_open", "running"]

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS = 60.0
STOP_SECONDS = 30.0
SELF_DESCRIPTIONS = ("/metrics", "/docs.json", "/schema.json", "/openapi.json")


def is_open(port: int) -> bool:
    """Whether something listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@dataclass
class Service:
    """A running service. `log` is its stderr and stdout."""

    port: int
    grpc_port: int
    log: Path
    process: subprocess.Popen[bytes]
    headers: dict[str, str] = field(default_factory=dict)
    certificate: Path | None = None

    @property
    def url(self) -> str:
        return f"http{'s' if self.certificate else ''}://127.0.0.1:{self.port}"

    @property
    def ws_url(self) -> str:
        return f"ws{'s' if self.certificate else ''}://127.0.0.1:{self.port}"

    def get(self, path: str) -> str:
        """The body of a GET."""
        trust = ssl.create_default_context(cafile=self.certificate) if self.certificate else None
        request = Request(self.url + path, headers=self.headers)  # noqa: S310 - loopback
        with urlopen(request, timeout=10, context=trust) as answer:  # noqa: S310 - loopback
            return str(answer.read().decode())

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that carry `labels`; 0 when there are none."""
        total = 0.0
        for line in self.get("/metrics").splitlines():
            if line.startswith((f"{name}{{", f"{name} ")) and all(f'{k}="{v}"' in line for k, v in labels.items()):
                total += float(line.rsplit(" ", 1)[1])
        return total

    def access_lines(self) -> list[dict[str, Any]]:
        """The JSON log lines so far."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    def processes(self) -> list[psutil.Process]:
        """The supervisor and its workers."""
        supervisor = psutil.Process(self.process.pid)
        return [supervisor, *supervisor.children(recursive=True)]

    def workers(self) -> list[psutil.Process]:
        """The worker processes."""
        children = psutil.Process(self.process.pid).children()
        return [process for process in children if "worker" in " ".join(process.cmdline())]

    def kill(self) -> None:
        """End all its processes without a warning."""
        for process in self.processes():
            process.kill()
        self.process.wait()


@contextmanager
def running(
    folder: Path,
    config: Mapping[str, Any],
    *,
    environment: Mapping[str, str] | None = None,
    workers: int = 1,
    grpc: bool = False,
    grace: int = 3,
    target: str = "service:Polywire",
    cwd: Path = ROOT,
    tls: tuple[Path, Path] | None = None,
    port: int | None = None,
) -> Iterator[Service]:
    """Run the service with `config` as its polywire.yaml until the block ends; its state lives in `folder`.

    `target` is what `bentoml serve` is given: the sources in `cwd`, or a bento's tag.

    `tls` is a certificate and its key.
    """
    path = folder / "polywire.yaml"
    path.write_text(yaml.safe_dump(dict(config)), encoding="utf-8")
    port, grpc_port = port or free_port(), free_port() if grpc else 0
    log = folder / "service.log"
    variables = {
        **{name: value for name, value in os.environ.items() if not name.startswith("POLYWIRE")},
        "BENTOML_DO_NOT_TRACK": "1",
        "BENTOML_HOME": str(folder / "bentoml"),
        "POLYWIRE_CONFIG": str(path),
        "POLYWIRE_GRPC_PORT": str(grpc_port),
        "POLYWIRE_STORE": f"sqlite:///{folder / 'polywire.db'}",
        "POLYWIRE__WORKERS": str(workers),
        **(environment or {}),
    }
    command = [sys.executable, "-m", "bentoml", "serve", target, "--host", "127.0.0.1", "--port", str(port)]
    if tls is not None:
        command += ["--ssl-certfile", str(tls[0]), "--ssl-keyfile", str(tls[1])]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--timeout-graceful-shutdown", str(grace)],
            cwd=cwd,
            env=variables,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    service = Service(port, grpc_port, log, process, certificate=tls[0] if tls else None)
    SEARCH.ports.add(port)
    try:
        _wait_until_ready(service)
        yield service
        _search(service, variables.get("POLYWIRE_API_KEYS", ""))
    finally:
        _stop(process)
        SEARCH.read(log.read_text(errors="replace"), str(log))
        SEARCH.read_folder(folder)


def _search(service: Service, keys: str) -> None:
    """Look for keys in what the service tells of itself; one that a test has ended tells nothing."""
    if keys:
        service.headers["authorization"] = f"Bearer {keys.partition(',')[0]}"
    for path in SELF_DESCRIPTIONS:
        with suppress(OSError):
            SEARCH.read(service.get(path), f"{path} of {service.log}")


def _wait_until_ready(service: Service) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if service.process.poll() is not None:
            break
        try:
            service.get("/readyz")
        except (URLError, OSError):
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"the service did not start:\n{service.log.read_text()[-4000:]}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        process.kill()
        process.wait()
        raise
