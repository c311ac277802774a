"""The programs that are measured: how each is started on the gateway's core, asked, and put to sleep meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml

from benchmarks.load import CACHE, GATEWAY_CORE, Load, Unavailable, favour, free_port, pinned, run, wait_for_port

ROOT = Path(__file__).resolve().parent.parent
KEY = "0123456789abcdef0123456789abcdef"
MODEL = "gpt-4o-mini"
LITELLM = "litellm[proxy]==1.108.7"
START_SECONDS = 180.0


@dataclass
class Target:
    """One program. `{port}` in its command becomes its port; without a command it runs already.

    `body` and `hello` (a socket's first message) hold `{control}` where the upstream's steering goes.
    """

    name: str
    port: int = field(default_factory=free_port)
    command: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    path: str = "/v1/chat/completions"
    body: str = json.dumps({"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "{control}"}]})
    hello: str | None = None
    headers: Sequence[str] = ()
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
            wait_for_port(self.port, process, START_SECONDS)
        except Unavailable as reason:
            raise Unavailable(f"{self.name} did not start ({reason}); its log: {log}") from None
        self.run(Load(tokens=2, requests=3, seconds=20, warm=0))
        self.processes += self.processes[0].children(recursive=True)
        favour(process.pid for process in self.processes)

    def run(self, load: Load) -> dict[str, Any]:
        """The client's figures under `load`."""
        control = load.control
        arguments = ["--path", self.path]
        for header in self.headers:
            arguments += ["--header", header]
        if self.hello is None:
            arguments += ["--proto", "http", "--body", self.body.replace("{control}", control)]
        else:
            arguments += [
                "--proto",
                "ws-down",
                "--method",
                "GET",
                "--start-msg",
                self.hello.replace("{control}", control),
            ]
        return run(load, self.port, arguments, [process.pid for process in self.processes])

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


def polywire(upstream: str, folder: Path, name: str = "Polywire", *, workers: int = 1, **asked: Any) -> Target:
    """Polywire as it is served, with its keys, guards and metrics on."""
    config = {
        "providers": [{"name": "upstream", "type": "openai", "base_url": upstream}],
        "models": [
            {"id": "default", "provider": "upstream", "upstream": MODEL},
            {"id": MODEL, "provider": "upstream", "upstream": MODEL},
            {"id": "voice", "provider": "upstream", "upstream": "tts-1", "kind": "speech"},
        ],
        "limits": {"streams": 5000},
    }
    home = folder / name.replace("/", "-")
    home.mkdir()
    path = home / "polywire.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    environment = {
        "BENTOML_HOME": str(home),
        "POLYWIRE_CONFIG": str(path),
        "POLYWIRE_GRPC_PORT": "0",
        "POLYWIRE_STORE": f"sqlite:///{home / 'polywire.db'}",
        "POLYWIRE_API_KEYS": KEY,
        "POLYWIRE__WORKERS": str(workers),
    }
    command = _bentoml("service:Polywire")
    return Target(name, command=command, environment=environment, headers=[f"authorization: Bearer {KEY}"], **asked)


def plain_voice(folder: Path, upstream: str | None = None) -> Target:
    """A socket under `bentoml serve` as it comes: it makes its frames itself, or relays those of `upstream`."""
    name = "bentoml serve, own frames" if upstream is None else "bentoml serve, relay"
    environment = {"BENTOML_HOME": str(folder), **({} if upstream is None else {"UPSTREAM": upstream})}
    command = _bentoml("benchmarks.peers.plain_voice:PlainVoice")
    return Target(name, command=command, environment=environment, path="/ws", hello="{control}")


def sdk_relay(upstream: str) -> Target:
    """A plain relay with the openai package's objects."""
    command = [sys.executable, "-m", "uvicorn", "benchmarks.peers.sdk_relay:app", "--port", "{port}", "--no-access-log"]
    return Target("openai-SDK relay", command=command, environment={"UPSTREAM": upstream})


def nginx(upstream: str, folder: Path) -> Target:
    """nginx as a pass-through without buffering. Raises Unavailable."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        raise Unavailable("nginx is not installed (Debian: apt-get install nginx-light)")
    target = Target("nginx")
    temporary = " ".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("proxy", "client_body", "fastcgi", "uwsgi", "scgi")
    )
    host = upstream.removeprefix("http://").removesuffix("/v1")
    config = folder / "nginx.conf"
    config.write_text(
        f"worker_processes 1; error_log {folder}/nginx-error.log; pid {folder}/nginx.pid; worker_rlimit_nofile 20000;"
        "events { worker_connections 16384; }"
        f"http {{ access_log off; keepalive_requests 1000000; tcp_nodelay on; {temporary}"
        f"upstream up {{ server {host}; keepalive 256; keepalive_requests 1000000; }}"
        f"server {{ listen 127.0.0.1:{target.port} backlog=8192; location / {{ proxy_pass http://up;"
        'proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; proxy_read_timeout 3600s; } } }',
        encoding="utf-8",
    )
    target.command = [program, "-p", str(folder), "-c", str(config), "-g", "daemon off;"]
    return target


def litellm(upstream: str, folder: Path) -> Target:
    """LiteLLM's proxy, installed into an environment of its own. Raises Unavailable."""
    program = _installed(LITELLM) / "bin" / "litellm"
    parameters = {"model": f"openai/{MODEL}", "api_base": upstream, "api_key": "none"}
    config = folder / "litellm.yaml"
    settings = {
        "model_list": [{"model_name": MODEL, "litellm_params": parameters}],
        "litellm_settings": {"num_retries": 0, "request_timeout": 600, "callbacks": []},
    }
    config.write_text(yaml.safe_dump(settings), encoding="utf-8")
    environment = {
        "LITELLM_LOG": "ERROR",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_MODE": "PRODUCTION",
        "LITELLM_MASTER_KEY": f"sk-{KEY}",
        "NO_DOCS": "True",
    }
    command = [str(program), "--config", str(config), "--host", "127.0.0.1", "--port", "{port}", "--num_workers", "1"]
    command += ["--telemetry", "False"]
    return Target("LiteLLM", command=command, environment=environment, headers=[f"authorization: Bearer sk-{KEY}"])


def _installed(requirement: str) -> Path:
    """The environment that holds `requirement`, made when it is not there. Raises Unavailable."""
    folder = CACHE / "".join(letter if letter.isalnum() else "-" for letter in requirement)
    done = folder / ".installed"
    if done.exists():
        return folder
    print(f"installing {requirement} into {folder}", flush=True)
    venv.create(folder, with_pip=True)
    pip: list[str | Path] = [folder / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", requirement]
    if subprocess.run(pip, check=False, capture_output=True).returncode:
        raise Unavailable(f"{requirement} cannot be installed here")
    done.touch()
    return folder


def _bentoml(target: str) -> list[str]:
    return [sys.executable, "-m", "bentoml", "serve", target, "--host", "127.0.0.1", "--port", "{port}"]


def scratch() -> tempfile.TemporaryDirectory[str]:
    """A folder for logs and state; deleted at the end."""
    return tempfile.TemporaryDirectory(prefix="polywire-bench-", ignore_cleanup_errors=True)
