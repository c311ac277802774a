"""The programs that are measured: how each is started on the gateway's core, asked, and put to sleep meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml

from benchmarks.load import GATEWAY_CORE, Load, Unavailable, favour, free_port, pinned, run, wait_for_port

ROOT = Path(__file__).resolve().parent.parent
KEY = "0123456789abcdef0123456789abcdef"
MODEL = "gpt-4o-mini"
START_SECONDS = 180.0
MOST_AT_ONCE = 5000
"""Streams and sockets that Polywire is let have: the limits are on, and out of the way."""


@dataclass
class Target:
    """One program. `{port}` in its command becomes its port; without a command it runs already.

    `body` and `hello` (a socket's first message) hold `{control}` where the upstream's steering goes; `call` makes
    the message of a gRPC call from it. `port_file` is where a program that chooses its port writes it, `more` goes to
    the client as it is.
    """

    name: str
    port: int = field(default_factory=free_port)
    command: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    path: str = "/v1/chat/completions"
    body: str = json.dumps({"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "{control}"}]})
    hello: str | None = None
    call: Callable[[str], bytes] | None = None
    headers: Sequence[str] = ()
    more: Sequence[str] = ()
    port_file: Path | None = None
    grpc_port: int = 0
    processes: list[psutil.Process] = field(default_factory=list)

    def start(self, folder: Path) -> None:
        """Start it and wait until it answers. Raises Unavailable."""
        if not self.command:
            return
        command = [part.format(port=self.port) for part in self.command]
        log = folder / f"{self.name.replace('/', '-')}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                pinned(GATEWAY_CORE, command),
                cwd=ROOT,
                env={**os.environ, "BENTOML_DO_NOT_TRACK": "1", **self.environment},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes = [psutil.Process(process.pid)]
        try:
            if self.port_file is not None:
                self.port = _chosen_port(self.port_file, process)
            # The supervisor listens for the worker, but not for its gRPC.
            wait_for_port(self.grpc_port or self.port, process, START_SECONDS)
        except Unavailable as reason:
            raise Unavailable(f"{self.name} did not start ({reason}); its log: {log}") from None
        self.run(Load(tokens=2, requests=3, seconds=20, warm=0))
        self.processes += self.processes[0].children(recursive=True)
        favour(process.pid for process in self.processes)

    def run(self, load: Load) -> dict[str, Any]:
        """The client's figures under `load`."""
        arguments = ["--path", self.path, *self.more]
        for header in self.headers:
            arguments += ["--header", header]
        watched = [process.pid for process in self.processes]
        if self.call is not None:
            with tempfile.NamedTemporaryFile() as message:
                # Its length must not change with the stream's number, which the client writes over these.
                message.write(self.call(load.control.replace("{ID}", "@" * 9)))
                message.flush()
                return run(load, self.grpc_port, [*arguments, "--grpc-body", message.name], watched)
        if self.hello is None:
            arguments += ["--proto", "http", "--body", self.body.replace("{control}", load.control)]
        else:
            hello = self.hello.replace("{control}", load.control)
            arguments += ["--proto", "ws-down", "--method", "GET", "--start-msg", hello]
        return run(load, self.port, arguments, watched)

    @property
    def memory(self) -> int:
        """Bytes of its processes that are theirs alone or their share (PSS)."""
        return sum(process.memory_full_info().pss for process in self.processes if process.is_running())

    def sleep(self) -> None:
        """Stop it while others are measured."""
        for process in self.processes:
            process.suspend()

    def wake(self) -> None:
        """Let it go on."""
        for process in self.processes:
            process.resume()

    def stop(self) -> None:
        """End it."""
        self.wake()
        if self.processes:
            self.processes[0].terminate()
        _, alive = psutil.wait_procs(self.processes, timeout=10)
        for process in alive:
            process.send_signal(signal.SIGKILL)


def polywire(
    upstream: str,
    folder: Path,
    name: str = "Polywire",
    *,
    workers: int = 1,
    chat: str = "upstream",
    voice: str = "upstream",
    service: str = "service:Polywire",
    **asked: Any,
) -> Target:
    """Polywire as it is served, with its keys, guards and metrics on. `chat` and `voice` name the default's provider:
    `upstream`, or `scripted`, whose chat says the prompt again."""
    chats, voices = ({"upstream": kind, "scripted": own} for kind, own in ((MODEL, "echo"), ("tts-1", "voice")))
    config = {
        "providers": [
            {"name": "upstream", "type": "openai", "base_url": upstream, "connections": MOST_AT_ONCE},
            {"name": "scripted", "type": "scripted"},
        ],
        "models": [
            {"id": "default", "provider": chat, "upstream": chats[chat]},
            {"id": MODEL, "provider": chat, "upstream": chats[chat]},
            {"id": "voice", "provider": voice, "upstream": voices[voice], "kind": "speech"},
        ],
        "limits": {"streams": MOST_AT_ONCE, "sockets": MOST_AT_ONCE, "sockets_per_key": MOST_AT_ONCE},
        "connectors": {"streams": MOST_AT_ONCE},
    }
    home = folder / name.replace("/", "-")
    home.mkdir()
    path = home / "polywire.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    environment = {
        "BENTOML_HOME": str(home),
        "POLYWIRE_CONFIG": str(path),
        "POLYWIRE_GRPC_PORT": str(asked.get("grpc_port", 0)),
        "POLYWIRE_STORE": f"sqlite:///{home / 'polywire.db'}",
        "POLYWIRE_API_KEYS": KEY,
        "POLYWIRE__WORKERS": str(workers),
    }
    headers = [f"authorization: Bearer {KEY}"]
    return Target(name, command=bentoml(service), environment=environment, headers=headers, **asked)


def bentoml(target: str) -> list[str]:
    """`bentoml serve` of `target`."""
    return [sys.executable, "-m", "bentoml", "serve", target, "--host", "127.0.0.1", "--port", "{port}"]


def scratch() -> tempfile.TemporaryDirectory[str]:
    """A folder for logs and state; deleted at the end."""
    return tempfile.TemporaryDirectory(prefix="polywire-bench-", ignore_cleanup_errors=True)


def _chosen_port(file: Path, process: subprocess.Popen[bytes]) -> int:
    """The port that the program wrote. Raises Unavailable when it ends or writes none."""
    for _ in range(int(START_SECONDS * 20)):
        if file.exists() and (port := file.read_text(encoding="ascii")):
            return int(port)
        if process.poll() is not None:
            break
        time.sleep(0.05)
    raise Unavailable("it wrote no port")
