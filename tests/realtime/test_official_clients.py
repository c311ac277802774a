"""Official Realtime clients against the running service: openai-python, @openai/agents-realtime, openai-node."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.realtime import RealtimeServerEvent

from tests.javascript import install, run_node
from tests.realtime.conftest import KEY, silence
from tests.realtime.sessions import check
from tests.running import Service

LEGACY_CONNECT = "ignore:connect.. must be used as a context manager:DeprecationWarning"
"""The SDK's way of using websockets 17."""
TEXT: Any = {"type": "realtime", "output_modalities": ["text"]}
HELLO: Any = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "one two three"}]}


async def test_openai_python_asynchronously(service: Service) -> None:
    client = openai.AsyncOpenAI(base_url=f"{service.url}/v1", api_key="any")
    text, kinds = "", []
    async with client.realtime.connect(model="echo") as connection:
        await connection.session.update(session=TEXT)
        await connection.conversation.item.create(item=HELLO)
        await connection.response.create()
        async for event in connection:
            kinds.append(check(event.to_dict())["type"])
            if event.type == "response.output_text.delta":
                text += event.delta
            elif event.type == "response.done":
                break
    await client.close()
    assert text == "one two three"
    assert kinds[:4] == ["session.created", "session.updated", "conversation.item.added", "conversation.item.done"]


@pytest.mark.filterwarnings(LEGACY_CONNECT)
def test_openai_python_synchronously(service: Service) -> None:
    client = openai.OpenAI(base_url=f"{service.url}/v1", api_key="any")
    audio = 0
    with client.realtime.connect(model="echo") as connection:
        connection.conversation.item.create(item=HELLO)
        connection.response.create()
        for event in connection:
            audio += len(event.delta) if event.type == "response.output_audio.delta" else 0
            if event.type == "response.done":
                break
    client.close()
    assert audio > 10_000


@pytest.mark.filterwarnings(LEGACY_CONNECT)
def test_openai_python_sees_errors_and_goes_on(service: Service) -> None:
    client = openai.OpenAI(base_url=f"{service.url}/v1", api_key="any")
    with client.realtime.connect(model="echo") as connection:
        connection.response.cancel(event_id="mine")
        events: list[RealtimeServerEvent] = [connection.recv(), connection.recv()]
        assert events[1].type == "error"
        assert (events[1].error.code, events[1].error.event_id) == ("response_cancel_not_active", "mine")
        connection.session.update(session=TEXT)
        assert connection.recv().type == "session.updated"
    client.close()


def agents(service: Service, verb: str, model: str, stdin: bytes = b"") -> Any:
    install()
    url = f"{service.ws_url}/v1/realtime?model={model}"
    return run_node("agents_realtime.mjs", url, "any", verb, model, stdin=stdin)


def test_agents_realtime_speaks(service: Service) -> None:
    seen = agents(service, "chat", "echo")
    assert (seen["status"], seen["errors"], seen["unknown"]) == ("completed", [], [])
    assert seen["audio"] == 2 * int(24_000 * 0.06 * len("one two three"))
    assert [item["role"] for item in seen["history"]] == ["user", "assistant"]
    assert seen["history"][1]["content"][0]["transcript"] == "one two three"


def test_agents_realtime_calls_a_tool(service: Service) -> None:
    seen = agents(service, "tool", "tools")
    assert seen["calls"][0] == "Seoul"
    assert seen["unknown"] == []


def test_agents_realtime_is_interrupted_and_truncates(talking: Service, question: bytes) -> None:
    seen = agents(talking, "interrupt", "long", stdin=question + silence(1.0))
    assert (seen["errors"], seen["unknown"]) == ([], [])
    assert seen["interrupted"] == 1
    assert seen["audio_end_ms"] < 5_000
    assert len(seen["transcript"]) < 200


@pytest.mark.parametrize("kind", ["ws", "websocket"])
def test_openai_node_over_tls(secure: Service, certificate: tuple[Path, Path], kind: str) -> None:
    """`websocket` is the browser's class: it brings a client secret in a sub-protocol."""
    install()
    trust = {"NODE_EXTRA_CA_CERTS": str(certificate[0])}
    seen = run_node("realtime.mjs", f"{secure.url}/v1", KEY, "echo", kind, environment=trust)
    assert (seen["status"], seen["text"]) == ("completed", "one two three")
    assert seen["session"]["model"] == "echo"
    if kind == "websocket":
        assert (seen["key"], seen["protocol"]) == ("ek_", "realtime")
        assert seen["session"]["instructions"] == "Be brief."
    assert KEY not in secure.log.read_text()
    assert "ek_" not in secure.log.read_text()


@pytest.fixture(scope="session")
def agents_packages() -> Path:
    """The packages of openai-agents, in a folder of their own beside the others."""
    wanted = Path(__file__).with_name("agents-requirements.txt")
    folder = Path(sys.prefix) / "openai-agents"
    marker = folder / wanted.name
    if not marker.exists() or marker.read_bytes() != wanted.read_bytes():
        shutil.rmtree(folder, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]
        subprocess.run([*pip, "--target", str(folder), "-r", str(wanted)], check=True, capture_output=True)
        shutil.copy(wanted, marker)
    return folder


def python_agents(service: Service, packages: Path, model: str, verb: str) -> Any:
    done = subprocess.run(
        [
            sys.executable,
            str(Path(__file__).with_name("agents_client.py")),
            f"{service.ws_url}/v1/realtime?model={model}",
            verb,
        ],
        env={**os.environ, "PYTHONPATH": str(packages)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_python_agents_speak(service: Service, agents_packages: Path) -> None:
    seen = python_agents(service, agents_packages, "echo", "chat")
    assert seen["errors"] == []
    assert seen["audio"] == 2 * int(24_000 * 0.06 * len("one two three"))
    assert [item["role"] for item in seen["history"]] == ["user", "assistant"]
    assert seen["history"][1]["content"][0]["transcript"] == "one two three"


def test_python_agents_call_a_tool(service: Service, agents_packages: Path) -> None:
    assert python_agents(service, agents_packages, "tools", "tool")["cities"] == ["Seoul"]


async def test_openai_python_over_tls(secure: Service, certificate: tuple[Path, Path]) -> None:
    client = openai.AsyncOpenAI(base_url=f"{secure.url}/v1", api_key=KEY)
    trust: Any = {"ssl": ssl.create_default_context(cafile=certificate[0])}
    async with client.realtime.connect(model="echo", websocket_connection_options=trust) as connection:
        assert (await asyncio.wait_for(connection.recv(), 10)).type == "session.created"
    await client.close()
