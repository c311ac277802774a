"""The referee: a fake upstream and a client in C (benchmarks/referee), built with the system's compiler into a cache.

Every token carries the time at which it was due, so a delay is measured per token, one way and on one clock, and a
program that blocks its upstream cannot hide it. Loss and reordering are counted. Traffic goes to loopback only.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Self
from urllib.request import urlopen

SOURCES = Path(__file__).parent / "referee"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "polywire-bench"
CORES = sorted(os.sched_getaffinity(0))
GATEWAY_CORE, REFEREE_CORE = CORES[0], CORES[-1]
NEVER_HANDED_OUT = range(20_000, 32_768)
"""Ports below those that the system gives to connections by itself (net.ipv4.ip_local_port_range)."""
_first_ids = count(1, 100_000)


class Unavailable(Exception):
    """Something that a measurement needs is not on this machine; the text says what."""


@dataclass(frozen=True, slots=True)
class Load:
    """What the client is to do: `streams` at once, measured for `seconds` after the ramp and the warm-up.

    `interval` is the time between two tokens in microseconds, 0 for as fast as possible; `requests` ends the run early.
    """

    streams: int = 1
    tokens: int = 1_000_000
    interval: int = 0
    seconds: float = 2.0
    ramp: float = 0.0
    warm: float = 0.5
    requests: int = 0
    silence: int = 0
    burst: int = 1
    more: Sequence[str] = field(default=())

    @property
    def control(self) -> str:
        """The words in the prompt that steer the fake upstream, whatever program they pass."""
        steps = f"n={self.tokens} iv={self.interval} ttft={self.silence} b={self.burst}"
        return f"#bench {steps} id={{ID}}#"


def build() -> Path:
    """The folder with `fakeup` and `sload`. Raises Unavailable without a C compiler."""
    version = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(SOURCES.glob("*.[ch]")))).hexdigest()[:12]
    folder = CACHE / f"referee-{version}"
    if (folder / "sload").exists():
        return folder
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise Unavailable("a C compiler (cc) is needed to build the referee")
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("fakeup", "sload"):
        subprocess.run([compiler, "-O2", "-w", "-o", folder / name, SOURCES / f"{name}.c"], check=True)
    return folder


class Upstream:
    """The fake upstream, as a context manager."""

    def __init__(self) -> None:
        self._folder = build()
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        command = [str(self._folder / "fakeup"), "-p", str(self.port)]
        self._process = subprocess.Popen(pinned(REFEREE_CORE, command), stderr=subprocess.DEVNULL)
        wait_for_port(self.port, self._process)
        # The clients are children of this process.
        favour((os.getpid(), self._process.pid))
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    @property
    def url(self) -> str:
        """The base URL of its OpenAI API."""
        return f"http://127.0.0.1:{self.port}/v1"

    def ask(self, path: str) -> Any:
        """What it says of itself: `/__stats`, `/__events`, `/__reset`, `/__killall`."""
        with urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            return json.load(answer)


def run(load: Load, port: int, arguments: Sequence[str], watched: Sequence[int]) -> dict[str, Any]:
    """Put `load` on what listens at `port`; the client's figures. `watched` are the processes whose CPU counts."""
    command = [str(build() / "sload"), "--port", str(port), "--conns", str(load.streams)]
    command += ["--dur", str(load.seconds), "--ramp", str(load.ramp), "--warm", str(load.warm)]
    command += ["--first-id", str(next(_first_ids)), *arguments, *load.more]
    if load.requests:
        command += ["--max-req", str(load.requests)]
    if watched:
        command += ["--watch", "gw=" + ",".join(map(str, watched))]
    done = subprocess.run(pinned(REFEREE_CORE, command), capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise RuntimeError(f"the referee's client failed: {done.stderr[-500:]}")
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def pinned(core: int, command: Sequence[str]) -> list[str]:
    """`command` on one core, where the system can pin."""
    return ["taskset", "-c", str(core), *command] if shutil.which("taskset") and len(CORES) > 1 else list(command)


def favour(pids: Iterable[int]) -> None:
    """On a machine that is not ours alone, `BENCH_NICE=-15` puts these processes' sessions first (root only)."""
    nice = os.environ.get("BENCH_NICE")
    for pid in pids if nice else ():
        os.setpriority(os.PRIO_PROCESS, pid, int(nice or 0))
        # The scheduler shares out by session before it looks at a process.
        group = Path(f"/proc/{pid}/autogroup")
        if group.exists():
            group.write_text(nice or "0", encoding="ascii")


def free_port() -> int:
    """A port that nobody has, and that no connection will be given while its server starts."""
    while True:
        port = secrets.choice(NEVER_HANDED_OUT)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def wait_for_port(port: int, process: subprocess.Popen[bytes], seconds: float = 10.0) -> None:
    """Return once somebody listens. Raises Unavailable when the process ends or does not listen in time."""
    for _ in range(int(seconds * 20)):
        if process.poll() is not None:
            raise Unavailable(f"{process.args!r} ended with {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            try:
                process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
        else:
            return
    raise Unavailable(f"nothing listened at port {port} within {seconds:g} s")
