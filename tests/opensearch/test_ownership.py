"""Who may create, and what of others exists for whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from tests.opensearch.cluster import KEY, ML, OPENAI, as_json, chat, completion, openai_connector, streamed
from tests.opensearch.in_process import in_process
from tests.upstreams.byte_server import serving

URL = "https://api.openai.com"
TRUST = {"trusted_endpoints": [r"^http://127\.0\.0\.1:\d+/.*$", r"^https://api\.openai\.com/.*$"]}
ASKED: dict[str, Any] = {"parameters": {"messages": [{"role": "user", "content": "hi"}], "_llm_interface": OPENAI}}


def key(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}"}


async def register(client: httpx.AsyncClient, headers: dict[str, str], url: str = URL) -> tuple[str, str]:
    """A connector and a model on it."""
    created = await client.post(f"{ML}/connectors/_create", json=openai_connector(url), headers=headers)
    connector = created.json()["connector_id"]
    body = {"name": "m", "function_name": "remote", "connector_id": connector}
    model = (await client.post(f"{ML}/models/_register", json=body, headers=headers)).json()["model_id"]
    return connector, model


async def test_what_belongs_to_another_key_does_not_exist(tmp_path: Path) -> None:
    async with in_process(tmp_path, api_keys="alice,bob") as client:
        connector, model = await register(client, key("alice"))
        calls: list[tuple[str, str, Any]] = [
            ("GET", f"connectors/{connector}", None),
            ("PUT", f"connectors/{connector}", {"description": "mine now"}),
            ("GET", f"models/{model}", None),
            ("PUT", f"models/{model}", {"description": "mine now"}),
            ("POST", f"models/{model}/_deploy", None),
            ("DELETE", f"models/{model}", None),
            ("POST", f"models/{model}/_predict", ASKED),
            ("POST", f"models/{model}/_predict/stream", ASKED),
            ("POST", "models/_register", {"name": "n", "function_name": "remote", "connector_id": connector}),
        ]
        for method, path, body in calls:
            answer = await client.request(method, f"{ML}/{path}", json=body, headers=key("bob"))
            assert answer.status_code == 404, (method, path, answer.text)
        deleted = await client.delete(f"{ML}/connectors/{connector}", headers=key("bob"))
        assert deleted.json()["result"] == "not_found"
        found = await client.get(f"{ML}/models/_search", headers=key("bob"))
        assert found.json()["hits"]["total"]["value"] == 0
        chat_body = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
        assert (await client.post("/v1/chat/completions", json=chat_body, headers=key("bob"))).status_code == 404
        assert (await client.get(f"{ML}/connectors/{connector}", headers=key("alice"))).status_code == 200


async def test_only_the_admin_key_creates_and_everybody_uses_what_it_made(tmp_path: Path) -> None:
    async with (
        serving(streamed(*chat("Hi")), as_json(completion())) as remote,
        in_process(tmp_path, api_keys="alice", admin_key="sk-canary-root", connectors=TRUST) as client,
    ):
        refused = await client.post(f"{ML}/connectors/_create", json=openai_connector(URL), headers=key("alice"))
        assert refused.status_code == 403
        assert "admin key" in refused.json()["error"]["reason"]
        connector, model = await register(client, key("sk-canary-root"), remote.url)
        streamed_answer = await client.post(f"{ML}/models/{model}/_predict/stream", json=ASKED, headers=key("alice"))
        assert '"is_last":true' in streamed_answer.text
        whole = await client.post(f"{ML}/models/{model}/_predict", json=ASKED, headers=key("alice"))
        assert whole.status_code == 200
        assert remote.requests[0].headers["authorization"] == f"Bearer {KEY}"
        assert (await client.get(f"{ML}/connectors/{connector}", headers=key("alice"))).status_code == 404
        assert (await client.delete(f"{ML}/models/{model}", headers=key("alice"))).status_code == 403


async def test_a_caller_cannot_send_the_connectors_key_to_another_trusted_host(tmp_path: Path) -> None:
    async with (
        serving(as_json(completion())) as meant,
        serving(as_json(completion())) as other,
        in_process(tmp_path, connectors=TRUST) as client,
    ):
        action = {"url": "http://${parameters.endpoint}/v1/${parameters.model}"}
        parameters = {"endpoint": f"127.0.0.1:{meant.port}", "model": "m"}
        body = openai_connector(URL, action=action, parameters=parameters)
        connector = (await client.post(f"{ML}/connectors/_create", json=body)).json()["connector_id"]
        body = {"name": "m", "function_name": "remote", "connector_id": connector}
        model = (await client.post(f"{ML}/models/_register", json=body)).json()["model_id"]
        for change in ({"endpoint": f"127.0.0.1:{other.port}"}, {"endpoint": "127.0.0.1"}, {"endpoint": "x@y"}):
            asked = {"parameters": {**ASKED["parameters"], **change}}
            for route in ("_predict", "_predict/stream"):
                assert (await client.post(f"{ML}/models/{model}/{route}", json=asked)).status_code == 400
        assert meant.requests == other.requests == []
        asked = {"parameters": {**ASKED["parameters"], "model": "n/../o"}}
        assert (await client.post(f"{ML}/models/{model}/_predict", json=asked)).status_code == 200
        assert meant.requests[0].path == "/v1/n%2F..%2Fo"


async def test_without_an_admin_key_only_this_machine_creates(tmp_path: Path) -> None:
    async with in_process(tmp_path, client="198.51.100.7", api_keys="alice") as client:
        answer = await client.post(f"{ML}/connectors/_create", json=openai_connector(URL), headers=key("alice"))
        assert answer.status_code == 403
    async with in_process(tmp_path, api_keys="alice") as client:
        through = {**key("alice"), "x-forwarded-for": "127.0.0.1"}
        answer = await client.post(f"{ML}/connectors/_create", json=openai_connector(URL), headers=through)
        assert answer.status_code == 403
    async with in_process(tmp_path, client="198.51.100.7", auth="none") as client:
        assert (await client.post(f"{ML}/connectors/_create", json=openai_connector(URL))).status_code == 403


async def test_basic_auth_carries_the_key_and_its_absence_is_said(tmp_path: Path) -> None:
    async with in_process(tmp_path, api_keys="alice") as client:
        answer = await client.get(f"{ML}/models/_search")
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Basic ")
        assert answer.json()["error"]["type"] == "security_exception"
        assert (await client.get(f"{ML}/models/_search", auth=("admin", "alice"))).status_code == 200


async def test_a_lost_store_key_is_said_and_gives_nothing_away(tmp_path: Path) -> None:
    async with in_process(tmp_path, store_key="sk-canary-store-1") as client:
        connector, _ = await register(client, {})
    async with in_process(tmp_path, store_key="sk-canary-store-2") as client:
        answer = await client.get(f"{ML}/connectors/{connector}")
        assert answer.status_code == 500
        assert "key has changed" in answer.json()["error"]["reason"]
    assert not (tmp_path / "state" / "polywire.db.key").exists()


async def test_without_a_store_the_configured_models_are_served(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the store's folder should be")
    async with in_process(tmp_path) as client:
        listed = await client.get("/v1/models")
        assert "echo" in [model["id"] for model in listed.json()["data"]]
        answer = await client.post(f"{ML}/models/echo/_predict", json=ASKED)
        assert answer.status_code == 200
        assert (await client.post(f"{ML}/connectors/_create", json=openai_connector(URL))).status_code >= 500
