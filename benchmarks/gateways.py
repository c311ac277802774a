"""The programs that Polywire is measured beside: gateways of others, and the plain way to write one.

Each is installed into an environment of its own in the cache; one that cannot be had raises Unavailable.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import yaml

from benchmarks.load import CACHE, Unavailable
from benchmarks.targets import KEY, MODEL, Target, bentoml

LITELLM = "litellm[proxy]==1.108.7"
PORTKEY = ("@portkey-ai/gateway@1.15.2", "hono@4.9.7", "@hono/node-server@1.13.5", "@hono/node-ws@1.2.0")
"""With what its own lock file names: on newer ones its requests fail."""
TENSORZERO = "tensorzero==2026.6.0"
PEERS = Path(__file__).parent / "peers"
NO_TRACING = "services.PlainVoice.tracing.excluded_urls='.*'"


def plain_voice(folder: Path, upstream: str | None = None, *, traced: bool = True) -> Target:
    """A socket under `bentoml serve` as it comes: it makes its frames itself, or relays those of `upstream`.

    Not `traced`: without BentoML's span for every message, which is what a user can switch off.
    """
    name = "bentoml serve, own frames" if upstream is None else "bentoml serve, relay"
    environment = {"BENTOML_HOME": str(folder), **({} if upstream is None else {"UPSTREAM": upstream})}
    if not traced:
        name += ", no tracing"
        environment["BENTOML_CONFIG_OPTIONS"] = NO_TRACING
    command = bentoml("benchmarks.peers.plain_voice:PlainVoice")
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


def portkey(upstream: str) -> Target:
    """Portkey's gateway on Node. Raises Unavailable."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise Unavailable("node and npm are not installed, which Portkey needs")
    what = " ".join(PORTKEY)
    folder = _folder(what)
    _once(folder, [npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", folder, *PORTKEY], what)
    program = folder / "node_modules" / "@portkey-ai" / "gateway" / "build" / "start-server.js"
    command = [node, str(program), "--port={port}", "--headless"]
    headers = ["x-portkey-provider: openai", f"x-portkey-custom-host: {upstream}", "authorization: Bearer none"]
    return Target("Portkey", command=command, environment={"NODE_ENV": "production"}, headers=headers)


def tensorzero(upstream: str, folder: Path) -> Target:
    """TensorZero's gateway, as its Python package embeds it. Raises Unavailable."""
    python = _installed(TENSORZERO) / "bin" / "python"
    config, port_file = folder / "tensorzero.toml", folder / "tensorzero.port"
    config.write_text(
        "[gateway]\nobservability.enabled = false\n"
        f'[models."{MODEL}"]\nrouting = ["upstream"]\n[models."{MODEL}".providers.upstream]\ntype = "openai"\n'
        f'model_name = "{MODEL}"\napi_base = "{upstream}/"\napi_key_location = "none"\n',
        encoding="utf-8",
    )
    messages = [{"role": "user", "content": "{control}"}]
    return Target(
        "TensorZero",
        command=[str(python), str(PEERS / "tensorzero_gateway.py"), str(config), str(port_file)],
        path="/openai/v1/chat/completions",
        body=json.dumps({"model": f"tensorzero::model_name::{MODEL}", "stream": True, "messages": messages}),
        port_file=port_file,
    )


def _installed(requirement: str) -> Path:
    """The environment that holds `requirement`, made when it is not there. Raises Unavailable."""
    folder = _folder(requirement)
    if not (folder / ".installed").exists():
        venv.create(folder, with_pip=True)
    pip: list[str | Path] = [folder / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", requirement]
    _once(folder, pip, requirement)
    return folder


def _folder(requirement: str) -> Path:
    return CACHE / "".join(letter if letter.isalnum() else "-" for letter in requirement)


def _once(folder: Path, command: list[str | Path], what: str) -> None:
    """Run an installer, unless it has done its work before. Raises Unavailable."""
    done = folder / ".installed"
    if done.exists():
        return
    print(f"installing {what} into {folder}", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    if subprocess.run(command, check=False, capture_output=True).returncode:
        raise Unavailable(f"{what} cannot be installed here")
    done.touch()
