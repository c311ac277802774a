"""Connectors over REST: what is taken, what is refused and in which words, what comes back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.opensearch.cluster import KEY, ML, Cluster, bedrock_connector, openai_connector, reason

URL = "https://api.openai.com"


async def create(cluster: Cluster, body: dict[str, Any]) -> tuple[int, str, str]:
    return reason(await cluster.client.post(f"{ML}/connectors/_create", json=body))


async def test_case_1_create_answers_with_nothing_but_an_id_of_20_url_safe_characters(cluster: Cluster) -> None:
    answer = await cluster.client.post(f"{ML}/connectors/_create", json=openai_connector(URL))
    assert answer.status_code == 200
    assert list(answer.json()) == ["connector_id"]
    id = answer.json()["connector_id"]
    assert len(id) == 20
    assert id.replace("-", "").replace("_", "").isalnum()


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("name", "Connector name is null"),
        ("version", "Connector version is null"),
        ("protocol", "Connector protocol is null"),
        ("credential", "Connector credential is null or empty list"),
    ],
)
async def test_case_2_a_missing_field_is_named(cluster: Cluster, field: str, words: str) -> None:
    body = openai_connector(URL)
    del body[field]
    assert await create(cluster, body) == (400, "illegal_argument_exception", words)


async def test_case_3_an_unknown_protocol_is_refused(cluster: Cluster) -> None:
    words = "Unsupported connector protocol. Please use one of [aws_sigv4, http, mcp_sse, mcp_streamable_http]"
    body = openai_connector(URL, protocol="grpc")
    assert await create(cluster, body) == (400, "illegal_argument_exception", words)


async def test_case_4_an_untrusted_url_is_refused(cluster: Cluster) -> None:
    words = "Connector URL is not matching the trusted connector endpoint regex"
    assert await create(cluster, openai_connector("https://evil.example")) == (
        400,
        "illegal_argument_exception",
        words,
    )


@pytest.mark.parametrize(
    ("field", "words"),
    [("url", "url can't be null"), ("method", "method can't be null"), ("action_type", "action type can't be null")],
)
async def test_case_5_an_action_without_a_field_is_refused(cluster: Cluster, field: str, words: str) -> None:
    body = openai_connector(URL, action={field: None})
    assert await create(cluster, body) == (400, "illegal_argument_exception", words)


@pytest.mark.parametrize(
    ("place", "field", "words"),
    [
        ("credential", "access_key", "Missing credential"),
        ("credential", "secret_key", "Missing credential"),
        ("parameters", "service_name", "Missing service name"),
        ("parameters", "region", "Missing region"),
    ],
)
async def test_case_6_sigv4_says_what_it_misses(cluster: Cluster, place: str, field: str, words: str) -> None:
    body = bedrock_connector("https://bedrock-runtime.us-east-1.amazonaws.com")
    del body[place][field]
    assert await create(cluster, body) == (400, "illegal_argument_exception", words)


async def test_case_7_a_callers_parameter_may_not_become_a_guarded_header(cluster: Cluster) -> None:
    words = (
        "Header 'Authorization' cannot use ${parameters.*} placeholders for security reasons. "
        "Use ${credential.*} instead."
    )
    body = openai_connector(URL, action={"headers": {"Authorization": "Bearer ${parameters.k}"}})
    assert await create(cluster, body) == (400, "illegal_argument_exception", words)


async def test_case_8_get_gives_the_connector_without_its_credential(cluster: Cluster) -> None:
    id = await cluster.create(openai_connector(URL, parameters={"endpoint": "x", "temperature": 0.7, "stop": ["a"]}))
    answer = await cluster.client.get(f"{ML}/connectors/{id}")
    body = answer.json()
    assert answer.headers["content-type"] == "application/json; charset=UTF-8"
    assert list(body) == [
        "name",
        "version",
        "description",
        "protocol",
        "parameters",
        "actions",
        "created_time",
        "last_updated_time",
    ]
    assert body["version"] == "1"
    assert body["protocol"] == "http"
    assert body["parameters"] == {"endpoint": "x", "temperature": "0.7", "stop": '["a"]'}
    assert body["actions"][0]["action_type"] == "PREDICT"
    assert body["actions"][0]["headers"] == {"Authorization": "Bearer ${credential.openAI_key}"}
    assert KEY not in answer.text


async def test_case_9_an_unknown_connector_is_404(cluster: Cluster) -> None:
    answer = await cluster.client.get(f"{ML}/connectors/nobody")
    words = "Failed to find connector with the provided connector id: nobody"
    assert reason(answer) == (404, "status_exception", words)


async def test_case_10_delete(cluster: Cluster) -> None:
    unused = await cluster.create(openai_connector(URL))
    deleted = await cluster.client.delete(f"{ML}/connectors/{unused}")
    assert (deleted.status_code, deleted.json()["result"], deleted.json()["_id"]) == (200, "deleted", unused)
    again = await cluster.client.delete(f"{ML}/connectors/{unused}")
    assert (again.status_code, again.json()["result"]) == (200, "not_found")

    model = await cluster.register(openai_connector(URL))
    connector = (await cluster.client.get(f"{ML}/models/{model}")).json()["connector_id"]
    used = await cluster.client.delete(f"{ML}/connectors/{connector}")
    words = f"1 models are still using this connector, please delete or update the models first: [{model}]"
    assert reason(used) == (409, "status_exception", words)


async def test_case_11_update_while_a_model_is_deployed_is_refused(cluster: Cluster) -> None:
    model = await cluster.register(openai_connector(URL))
    connector = (await cluster.client.get(f"{ML}/models/{model}")).json()["connector_id"]
    path = f"{ML}/connectors/{connector}"
    refused = await cluster.client.put(path, json={"description": "new"})
    words = f"1 models are still using this connector, please undeploy the models first: [{model}]"
    assert reason(refused) == (400, "status_exception", words)

    await cluster.client.post(f"{ML}/models/{model}/_undeploy")
    updated = await cluster.client.put(path, json={"description": "new", "parameters": {"model": "gpt-4"}})
    assert (updated.status_code, updated.json()["result"], updated.json()["_version"]) == (200, "updated", 2)
    body = (await cluster.client.get(path)).json()
    assert (body["description"], body["parameters"]["model"]) == ("new", "gpt-4")
    assert body["parameters"]["endpoint"] == "api.openai.com"


async def test_an_update_may_not_lead_somewhere_else(cluster: Cluster) -> None:
    id = await cluster.create(openai_connector(URL))
    action = {"action_type": "predict", "method": "POST", "url": "http://169.254.169.254/latest"}
    answer = await cluster.client.put(f"{ML}/connectors/{id}", json={"actions": [action]})
    assert answer.status_code == 400


async def test_unknown_fields_are_ignored_and_dry_run_keeps_nothing(cluster: Cluster) -> None:
    body = openai_connector(URL, action={"response_filter": "$.x"}, something={"else": 1})
    id = await cluster.create(body)
    action = (await cluster.client.get(f"{ML}/connectors/{id}")).json()["actions"][0]
    assert "response_filter" not in action
    assert await cluster.create(body | {"dry_run": True}) == "dryRunConnector"
    assert (await cluster.client.get(f"{ML}/connectors/dryRunConnector")).status_code == 404


async def test_a_client_may_choose_an_id_that_is_free(cluster: Cluster) -> None:
    body = openai_connector(URL, connector_id="my-connector")
    assert await cluster.create(body) == "my-connector"
    assert (await cluster.client.post(f"{ML}/connectors/_create", json=body)).status_code == 409


async def test_a_credential_lies_encrypted_in_the_store(cluster: Cluster) -> None:
    await cluster.create(openai_connector(URL))
    folder = cluster.service.log.parent
    stored = b"".join(path.read_bytes() for path in folder.glob("polywire.db*"))
    assert b"OpenAI Chat Connector" in stored
    assert KEY.encode() not in stored
    assert (folder / "polywire.db.key").stat().st_mode & 0o777 == 0o600
