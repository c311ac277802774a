"""Case Z1's kind: nothing that a caller sends becomes a header, a log line, a placeholder or markup of ours."""

from __future__ import annotations

import json
import socket as plain_socket

import httpx
import pytest

from tests.opensearch.cluster import ML
from tests.running import Service
from tests.sockets import socket
from tests.trust.conftest import ADMIN, ALICE, BOB
from tests.trust.test_conventions import CALLS
from wires.auth import KEY_PROTOCOL

NASTY = 'x\r\nset-cookie: a=b\r\n\r\n{"outcome": "finished"}\n\x1b[31m ${credential.key} {{7777*7777}} <script>'


def raw(service: Service, request: bytes) -> bytes:
    """The answer to exact bytes."""
    with plain_socket.create_connection(("127.0.0.1", service.port), timeout=10) as connection:
        connection.sendall(request)
        answer = b""
        while data := connection.recv(65536):
            answer += data
    return answer


@pytest.mark.parametrize("wire", list(CALLS))
async def test_a_nasty_model_name_adds_no_header_and_no_log_line(guarded: Service, wire: str) -> None:
    path, body = CALLS[wire]
    lines = len(guarded.log.read_text().splitlines())
    async with httpx.AsyncClient(base_url=guarded.url, timeout=20, headers=guarded.headers) as client:
        answer = await client.post(path, json={**body, "model": NASTY, "id": NASTY, "version": NASTY, "user": NASTY})
    assert "set-cookie" not in answer.headers
    assert b"\r\nset-cookie" not in answer.content
    assert "60481729" not in answer.text
    added = guarded.log.read_text().splitlines()[lines:]
    assert all(line.startswith(("{", "INFO", "WARNING")) for line in added), added
    assert all(json.loads(line)["wire"] for line in added if line.startswith("{"))
    assert "\x1b" not in "".join(added)


@pytest.mark.parametrize("id", ["a\tb", "a b", "a" * 129, "<script>", "ü", "../../x", "{}"])
def test_a_request_id_that_is_not_sane_is_not_taken_over(guarded: Service, id: str) -> None:
    request = f"GET /livez HTTP/1.1\r\nhost: localhost\r\nx-request-id: {id}\r\nconnection: close\r\n\r\n"
    head = raw(guarded, request.encode()).split(b"\r\n\r\n")[0]
    assert head.count(b"x-request-id") == 1
    assert id.encode() not in head


@pytest.mark.parametrize(
    "path", ["/v1/%0d%0aset-cookie:%20a=b", "/_plugins/_ml/models/%0d%0ax:%20y", "/%00", "/lambda/%1b"]
)
def test_control_characters_in_a_path_come_back_in_no_head(guarded: Service, path: str) -> None:
    request = f"GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {ALICE}\r\nconnection: close\r\n\r\n"
    head = raw(guarded, request.encode()).split(b"\r\n\r\n")[0]
    assert head.split()[1] in (b"404", b"405", b"400")
    assert b"set-cookie" not in head
    assert b"\r\nx: y" not in head


async def test_no_key_is_ever_written_down(guarded: Service) -> None:
    """Sub-protocols, query strings, headers and wrong keys, in logs, metrics, schemas and errors."""
    async with socket(guarded, f"?key={ALICE}", subprotocols=["polywire.v1", f"{KEY_PROTOCOL}{ALICE}"]) as client:
        assert (await client.ask(type="chat", text="hi", model="none")).last["type"] == "error"
    texts = []
    async with httpx.AsyncClient(base_url=guarded.url, timeout=20) as client_:
        for key in (ALICE, BOB, ADMIN):
            headers = {"authorization": f"Bearer {key}", "x-api-key": f"{key}x"}
            for path in (
                "/metrics",
                "/openapi.json",
                "/docs.json",
                "/schema.json",
                "/v1/models",
                f"{ML}/models/_search",
            ):
                texts.append((await client_.get(f"{path}?api_key={key}", headers=headers)).text)
    texts.append(guarded.log.read_text())
    for file in guarded.log.parent.rglob("*"):
        if file.is_file():
            texts.append(file.read_bytes().decode("latin-1"))
    assert [key for key in (ALICE, BOB, ADMIN) if any(key in text for text in texts)] == []


def test_the_page_runs_nothing_but_its_own_scripts(guarded: Service) -> None:
    with httpx.Client(base_url=guarded.url) as client:
        policy = client.get("/playground").headers["content-security-policy"]
    for part in (
        "default-src 'none'",
        "script-src 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    ):
        assert part in policy
    assert "unsafe" not in policy


JSON_ROUTES: dict[str, tuple[str, bytes]] = {
    **{wire: (path, json.dumps(body).encode()[:-1]) for wire, (path, body) in CALLS.items()},
    "responses": ("/v1/responses", b'{"model": "default", "input": "hi"'),
    "completions": ("/v1/completions", b'{"model": "default", "prompt": "hi"'),
    "speech": ("/v1/audio/speech", b'{"model": "voice", "voice": "alloy", "input": "hi"'),
    "client secrets": ("/v1/realtime/client_secrets", b'{"session": {"type": "realtime"}'),
    "connector": (f"{ML}/connectors/_create", b'{"name": "c"'),
    "register": (f"{ML}/models/_register", b'{"name": "m"'),
    "search": (f"{ML}/models/_search", b'{"size": 1'),
}


@pytest.mark.parametrize("route", list(JSON_ROUTES))
@pytest.mark.parametrize("depth", [200, 900, 10_000])
async def test_deep_json_is_refused_and_never_a_fault(guarded: Service, route: str, depth: int) -> None:
    path, body = JSON_ROUTES[route]
    headers = {"authorization": f"Bearer {ADMIN}", "content-type": "application/json"}
    before = guarded.log.read_text().count("Traceback")
    async with httpx.AsyncClient(base_url=guarded.url, timeout=20, headers=headers) as client:
        for field in (b"tools", b"extra", b"parameters", b"input", b"query", b"messages"):
            for open_, close in ((b"[", b"]"), (b'{"a":', b"}")):
                deep = body + b', "' + field + b'": ' + open_ * depth + b"1" + close * depth + b"}"
                answer = await client.post(path, content=deep)
                # A failure of ours is 500; ML Commons' own words for a model's refusal are too.
                assert answer.status_code < 500 or "Polywire failed" not in answer.text, (field, answer.text)
                if depth == 10_000:
                    assert answer.status_code in (400, 422), (field, answer.text)
    assert guarded.log.read_text().count("Traceback") == before
