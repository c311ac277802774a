"""One log line per request with its true outcome, its id on every answer, and labels that nobody can multiply."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from tests.conftest import scripted_config
from tests.observability.requests import CODE, Asked, every_request
from tests.opensearch.cluster import Cluster, chat, openai_connector, streamed
from tests.running import Service, running
from tests.upstreams.byte_server import Act, Answer, ByteServer

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
REQUESTS = every_request()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with an open provider and trusted connectors: whatever lets callers make up names."""
    config = scripted_config(connectors={"trusted_endpoints": [r"^http://127\.0\.0\.1:\d+/.*$"]})
    config["providers"][0]["open"] = True
    config["models"].append({"id": "test/fails", "provider": "script", "upstream": "fails-midway"})
    with running(tmp_path_factory.mktemp("seen"), config, grpc=True) as started:
        yield started


@pytest.fixture
async def http(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=service.url, timeout=20) as client:
        yield client


async def test_every_request_has_one_line_and_its_id_and_every_stream_is_counted_once(
    service: Service, http: httpx.AsyncClient
) -> None:
    ids = {f"line-{number}": asked for number, asked in enumerate(REQUESTS)}
    before = await counted(http)
    for id, asked in ids.items():
        assert await asked.send(service, http, id) == id, asked.name
    await until_logged(service, set(ids))
    wrong = {asked.name: found for id, asked in ids.items() if (found := fault(service, id, asked))}
    assert not wrong
    lines = [line for line in service.access_lines() if line["request_id"] in ids and "model" in line]
    assert await counted(http) - before == Counter((line["wire"], line["outcome"]) for line in lines)


async def counted(http: httpx.AsyncClient) -> Counter[tuple[str, str]]:
    """How many streams of each wire have ended with each outcome."""
    text = (await http.get("/metrics")).text
    found = re.findall(r'^polywire_streams_total{outcome="(\w+)",provider="\w+",wire="([\w-]+)"} (\S+)$', text, re.M)
    return Counter({(wire, outcome): int(float(value)) for outcome, wire, value in found})


async def until_logged(service: Service, ids: set[str]) -> None:
    """Wait until each id has a line, and until a line that comes after them has come."""
    async with asyncio.timeout(10):
        while not ids <= {line["request_id"] for line in service.access_lines()}:  # noqa: ASYNC110 - a file tells nobody
            await asyncio.sleep(0.05)
    await asyncio.sleep(0.2)


def fault(service: Service, id: str, asked: Asked) -> object:
    """What is wrong with the lines of a request; nothing when there is one and it says what it should."""
    lines = [line for line in service.access_lines() if line["request_id"] == id]
    if len(lines) != 1:
        return lines
    (line,) = lines
    right = all(bool(line.get(key)) if value is CODE else line.get(key) == value for key, value in asked.line.items())
    return None if right and line["duration_ms"] >= 0 and "time" in line else line


async def test_a_caller_cannot_make_up_labels(service: Service, http: httpx.AsyncClient) -> None:
    async with ByteServer({"/v1/chat/completions": streamed(*chat("Hi"))}) as remote:
        model = await Cluster(service, http).register(openai_connector(remote.url))
        for made_up in (f"script/{TRACE}", "script/hello", "made-up-model", model):
            body = {"model": made_up, "messages": [{"role": "user", "content": "hi"}], "stream": True}
            await http.post("/v1/chat/completions", json=body)
            await http.get(f"/v1/made-up-path/{made_up}")
            await http.request("GET", f"/made-up/{made_up}", headers={"x-request-id": "made-up-id"})
    text = (await http.get("/metrics")).text
    labels = {(name, value) for name, value in re.findall(r'(\w+)="([^"]*)"', text) if name != "le"}
    wires = {"generate", "ws", "openai", "realtime", "replicate", "opensearch", "opensearch-grpc", "lambda"}
    allowed = {
        "wire": wires | {"sagemaker", "sagemaker_runtime"},
        "provider": {"script", "connector"},
        "outcome": {"finished", "failed", "truncated", "cancelled"},
        "gen_ai_token_type": {"input", "output"},
    }
    for name, value in labels:
        assert value in allowed[name] if name in allowed else (name == "status" and value.isdigit()), (name, value)
    assert ("provider", "connector") in labels
    assert "made-up" not in text
    assert model not in text


async def test_the_callers_trace_reaches_the_provider_and_the_log(tmp_path_factory: pytest.TempPathFactory) -> None:
    hanging = Answer([b'data: {"choices": [{"index": 0, "delta": {"content": "Hi"}}]}\n\n', Act.DROP])
    routes = {"/v1/chat/completions": hanging, "/v1/audio/speech": hanging}
    async with ByteServer(routes) as upstream:
        config = scripted_config()
        config["providers"].append({"name": "remote", "type": "openai", "base_url": f"{upstream.url}/v1"})
        config["models"] += [
            {"id": "remote", "provider": "remote", "upstream": "m"},
            {"id": "spoken", "provider": "remote", "upstream": "v", "kind": "speech", "voice": "alloy"},
        ]
        with running(tmp_path_factory.mktemp("trace"), config) as service:
            async with httpx.AsyncClient(base_url=service.url, timeout=20) as http:
                headers = {"traceparent": PARENT, "tracestate": "vendor=1"}
                body = {"model": "remote", "messages": [{"role": "user", "content": "hi"}], "stream": True}
                await http.post("/v1/chat/completions", json=body, headers=headers)
                await http.post("/v1/chat/completions", json=body, headers={"traceparent": "no trace\tat all"})
                speech = {"model": "spoken", "voice": "alloy", "input": "Hi.", "response_format": "pcm"}
                assert (await http.post("/v1/audio/speech", json=speech, headers=headers)).status_code == 502
            traced = [request.headers.get("traceparent") for request in upstream.requests]
            assert traced == [PARENT, None, PARENT]
            assert upstream.requests[0].headers["tracestate"] == "vendor=1"
            assert [line.get("trace_id") for line in service.access_lines()] == [TRACE, None, TRACE]
