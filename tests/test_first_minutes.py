"""What goes wrong in the first ten minutes says what to do: at the start in one sentence, later in the answer."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.running import ROOT, Service, free_port, running

MAKE = ("make", "--no-print-directory", "--old-file=.venv/.serve", "serve")
BENTOML = (sys.executable, "-m", "bentoml", "serve", "service:Polywire", "--host", "127.0.0.1")
CLOSED = 1
"""A port at which nothing answers."""
MODELS = ("unreachable", "unknown-host", "keyless", "weightless")
PROVIDERS = [
    {"name": "unreachable", "type": "openai", "base_url": f"http://127.0.0.1:{CLOSED}/v1"},
    {"name": "unknown-host", "type": "openai", "base_url": "http://no-such-host.invalid/v1"},
    {"name": "keyless", "type": "openai", "base_url": "http://127.0.0.1:1/v1", "api_key_env": "NOBODY_SET_THIS"},
    {"name": "weightless", "type": "local"},
]


def start(folder: Path, *command: str, **environment: str) -> str:
    """What a start that fails says, without what make itself says of it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("POLYWIRE")}
    variables = {"POLYWIRE_STORE": f"sqlite:///{folder}/p.db", "BENTOML_HOME": str(folder), "POLYWIRE_GRPC_PORT": "0"}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**kept, **variables, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    return "\n".join(line for line in done.stderr.splitlines() if not line.startswith("make: "))


@pytest.fixture
def taken() -> Iterator[str]:
    """A port at which somebody else listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield str(listener.getsockname()[1])


def test_make_serve_at_a_taken_port(tmp_path: Path, taken: str) -> None:
    said = start(tmp_path, *MAKE, f"PORT={taken}", "GRPC_PORT=0")
    assert said.startswith(f"Port {taken} on 127.0.0.1 is taken; ")
    assert "make serve PORT=8000" in said


def test_bentoml_serve_at_a_taken_port(tmp_path: Path, taken: str) -> None:
    assert f"Port {taken} on 127.0.0.1 is taken; " in start(tmp_path, *BENTOML, "--port", taken)


def test_bentoml_serve_at_its_usual_port_when_that_is_taken(tmp_path: Path) -> None:
    with ExitStack() as stack:
        with suppress(OSError):  # somebody has it already, which does as well
            stack.enter_context(socket.create_server(("127.0.0.1", 3000)))
        assert "Port 3000 on 127.0.0.1 is taken; " in start(tmp_path, *BENTOML)


def test_a_taken_grpc_port(tmp_path: Path, taken: str) -> None:
    said = start(
        tmp_path, *BENTOML, "--port", str(free_port()), POLYWIRE_GRPC_PORT=taken, POLYWIRE_GRPC_HOST="127.0.0.1"
    )
    assert f"The gRPC port {taken} on 127.0.0.1 is taken; set POLYWIRE_GRPC_PORT to another one" in said


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("HOST=192.0.2.1",), "HOST must be an address of this machine"),
        (("PORT=99999",), "a port is a number up to 65535"),
        (("PORT=http",), "'http' is not a valid integer"),
        (("CONFIG=nowhere.yaml",), "There is no configuration file 'nowhere.yaml'"),
    ],
    ids=str,
)
def test_a_start_with_a_wrong_word(tmp_path: Path, arguments: tuple[str, ...], sentence: str) -> None:
    assert sentence in start(tmp_path, *MAKE, f"PORT={free_port()}", "GRPC_PORT=0", *arguments)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("providers:\n  - {name: a, type: opnai}\n", r"line 2: providers\.0\.type: Input should be 'local', 'openai'"),
        ("providers:\n  - {name: a", r"is not valid YAML: .*\n.*line 2"),
        ("store: mysql://here\n", "write 'sqlite:///' and the path of a file"),
    ],
)
def test_a_wrong_file(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    said = start(tmp_path, *BENTOML, "--port", str(free_port()), POLYWIRE_CONFIG=str(path), POLYWIRE_STORE="")
    assert re.search(sentence, said)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    models = [{"id": name, "provider": name, "upstream": "chat"} for name in MODELS]
    environment = {"POLYWIRE__LOCAL__GGUF": "/nowhere/model.gguf", "POLYWIRE_API_KEYS": "right"}
    folder = tmp_path_factory.mktemp("first-minutes")
    with running(folder, {"providers": PROVIDERS, "models": models}, environment=environment) as started:
        yield started


def ask(service: Service, model: str, key: str = "right") -> tuple[int, Any]:
    answer = httpx.post(
        f"{service.url}/generate",
        json={"prompt": "hi", "model": model},
        headers={"authorization": f"Bearer {key}"},
        timeout=30,
    )
    return answer.status_code, answer.json()["error"]


@pytest.mark.parametrize(
    ("model", "status", "sentence"),
    [
        ("unreachable", 503, "Provider 'unreachable' cannot be reached; is it running, and is its base_url right?"),
        ("unknown-host", 503, "The host of provider 'unknown-host' is unknown; check its base_url."),
        ("keyless", 502, "Provider 'keyless' has no key: set the environment variable NOBODY_SET_THIS and restart."),
        ("weightless", 503, "The model file '/nowhere/model.gguf' cannot be read (No such file or directory)"),
        ("gpt-5", 404, "There is no chat model 'gpt-5'. The chat models here are 'unreachable', 'unknown-host'"),
    ],
)
def test_a_model_that_cannot_answer(service: Service, model: str, status: int, sentence: str) -> None:
    answer = ask(service, model)
    assert answer[0] == status
    assert answer[1].startswith(sentence)


def test_a_wrong_key(service: Service) -> None:
    status, sentence = ask(service, "unreachable", key="wrong")
    assert status == 401
    assert "those in POLYWIRE_API_KEYS" in sentence


def test_what_is_not_ready_is_in_the_log_before_anybody_asks(service: Service) -> None:
    assert "provider 'keyless' is not ready for chat" in service.log.read_text()
