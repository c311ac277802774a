"""Models and tasks over REST, and the searches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from tests.opensearch.cluster import KEY, ML, Cluster, openai_connector, reason
from tests.opensearch.in_process import in_process

URL = "https://api.openai.com"


async def register(cluster: Cluster, body: dict[str, Any]) -> httpx.Response:
    return await cluster.client.post(f"{ML}/models/_register", json=body)


async def test_case_12_searches_before_and_after_anything_exists(tmp_path: Path) -> None:
    async with in_process(tmp_path) as client:
        for kind in ("connectors", "models", "tasks"):
            found = (await client.get(f"{ML}/{kind}/_search")).json()
            assert found["hits"]["total"] == {"value": 0, "relation": "eq"}
            assert found["hits"]["hits"] == []
        connector = (await client.post(f"{ML}/connectors/_create", json=openai_connector(URL))).json()["connector_id"]
        body = {"name": "m", "function_name": "remote", "connector_id": connector}
        model = (await client.post(f"{ML}/models/_register", json=body)).json()["model_id"]
        for kind in ("connectors", "models", "tasks"):
            answer = await client.post(f"{ML}/{kind}/_search", json={"query": {"match_all": {}}, "size": 5})
            assert answer.json()["hits"]["total"]["value"] == 1
            assert "credential" not in answer.json()["hits"]["hits"][0]["_source"]
            assert KEY not in answer.text
        by_id = {"query": {"ids": {"values": [model]}}}
        assert (await client.post(f"{ML}/models/_search", json=by_id)).json()["hits"]["hits"][0]["_id"] == model


async def test_a_search_finds_by_name_and_refuses_what_it_does_not_know(cluster: Cluster) -> None:
    model = await cluster.register(openai_connector(URL), "a rare name")
    hit = {"query": {"bool": {"must": [{"match": {"name": "rare"}}], "must_not": [{"term": {"algorithm": "X"}}]}}}
    found = (await cluster.client.post(f"{ML}/models/_search", json=hit)).json()["hits"]
    assert [item["_id"] for item in found["hits"]] == [model]
    missed = {"query": {"term": {"name.keyword": "rare"}}}
    assert (await cluster.client.post(f"{ML}/models/_search", json=missed)).json()["hits"]["total"]["value"] == 0
    strange = await cluster.client.post(f"{ML}/models/_search", json={"query": {"fuzzy": {}}})
    assert reason(strange) == (400, "parsing_exception", "unknown query [fuzzy]")
    assert reason(await cluster.client.post(f"{ML}/models/_search"))[:2] == (400, "parse_exception")


async def test_case_13_register_gives_a_task_and_a_model(cluster: Cluster) -> None:
    connector = await cluster.create(openai_connector(URL))
    body = {"name": "m", "function_name": "remote", "description": "d", "connector_id": connector}
    answer = await register(cluster, body)
    assert list(answer.json()) == ["task_id", "status", "model_id"]
    assert answer.json()["status"] == "CREATED"
    assert len(answer.json()["model_id"]) == 20
    task = (await cluster.client.get(f"{ML}/tasks/{answer.json()['task_id']}")).json()
    assert task["model_id"] == answer.json()["model_id"]
    assert (task["task_type"], task["function_name"], task["state"]) == ("REGISTER_MODEL", "REMOTE", "COMPLETED")
    model = (await cluster.client.get(f"{ML}/models/{task['model_id']}")).json()
    assert (model["name"], model["algorithm"], model["model_state"]) == ("m", "REMOTE", "REGISTERED")
    assert (model["model_version"], model["connector_id"]) == ("1", connector)


async def test_case_14_what_a_registration_may_miss(cluster: Cluster) -> None:
    illegal = "illegal_argument_exception"
    assert reason(await register(cluster, {"function_name": "remote"})) == (400, illegal, "model name is null")
    words = "You must provide connector content when creating a remote model without connector id!"
    assert reason(await register(cluster, {"name": "m", "function_name": "remote"})) == (400, illegal, words)
    unknown = {"name": "m", "function_name": "remote", "connector_id": "nobody"}
    assert reason(await register(cluster, unknown)) == (404, "status_exception", "Failed to find connector:nobody")
    assert reason(await register(cluster, {"name": "m"})) == (400, illegal, "model format is null")


async def test_case_15_and_17_deploy_and_undeploy(cluster: Cluster) -> None:
    model = await cluster.register(openai_connector(URL), deploy=False)
    deployed = (await cluster.client.post(f"{ML}/models/{model}/_deploy")).json()
    assert (deployed["task_type"], deployed["status"]) == ("DEPLOY_MODEL", "COMPLETED")
    task = (await cluster.client.get(f"{ML}/tasks/{deployed['task_id']}")).json()
    assert (task["task_type"], task["is_async"], task["model_id"]) == ("DEPLOY_MODEL", True, model)
    assert (await cluster.client.get(f"{ML}/models/{model}")).json()["model_state"] == "DEPLOYED"

    (node,) = (await cluster.client.post(f"{ML}/models/{model}/_undeploy")).json().values()
    assert node == {"stats": {model: "undeployed"}}
    (node,) = (await cluster.client.post(f"{ML}/models/_undeploy", json={"model_ids": [model]})).json().values()
    assert node == {"stats": {model: "not_found"}}


async def test_case_16_a_deployed_model_is_not_deleted(cluster: Cluster) -> None:
    model = await cluster.register(openai_connector(URL))
    words = "Model cannot be deleted in deploying or deployed state. Try undeploy model first then delete"
    path = f"{ML}/models/{model}"
    assert reason(await cluster.client.delete(path)) == (400, "status_exception", words)
    await cluster.client.post(f"{path}/_undeploy")
    deleted = (await cluster.client.delete(path)).json()
    assert (deleted["_index"], deleted["result"]) == (".plugins-ml-model", "deleted")
    assert reason(await cluster.client.delete(path)) == (404, "status_exception", "Failed to find model")
    unknown = f"Failed to find model with the provided model id: {model}"
    assert reason(await cluster.client.get(path)) == (404, "status_exception", unknown)


async def test_a_model_changes_and_a_second_of_its_name_joins_its_group(cluster: Cluster) -> None:
    first = await cluster.register(openai_connector(URL), "twice")
    second = await cluster.register(openai_connector(URL), "twice")
    updated = await cluster.client.put(f"{ML}/models/{second}", json={"description": "new", "is_enabled": False})
    assert updated.json()["result"] == "updated"
    one, two = [(await cluster.client.get(f"{ML}/models/{id}")).json() for id in (first, second)]
    assert one["model_group_id"] == two["model_group_id"]
    assert (two["model_version"], two["description"], two["is_enabled"]) == ("2", "new", False)
    refused = await cluster.predict(second, {"messages": []})
    assert reason(refused) == (403, "status_exception", "Model is disabled.")


async def test_an_inline_connector_keeps_its_credential_to_itself(cluster: Cluster) -> None:
    body = {"name": "inline", "function_name": "remote", "connector": openai_connector(URL)}
    model = (await register(cluster, body)).json()["model_id"]
    answer = await cluster.client.get(f"{ML}/models/{model}")
    assert answer.json()["connector"]["name"] == "OpenAI Chat Connector"
    assert "credential" not in answer.json()["connector"]
    assert KEY not in answer.text


async def test_case_43_a_row_of_the_configuration_is_a_model_too(cluster: Cluster) -> None:
    body = (await cluster.client.get(f"{ML}/models/echo")).json()
    assert (body["name"], body["algorithm"], body["model_state"]) == ("echo", "REMOTE", "DEPLOYED")
    answer = await cluster.predict("echo", {"messages": [{"role": "user", "content": "back again"}]})
    output = answer.json()["inference_results"][0]["output"][0]
    assert output["dataAsMap"]["choices"][0]["message"]["content"] == "back again"
    assert (await cluster.predict("test/echo", {"inputs": "two parts"})).status_code == 200
    assert (await cluster.client.delete(f"{ML}/models/echo")).status_code == 400


async def test_cluster_settings_are_acknowledged_or_refused_but_never_ignored(cluster: Cluster) -> None:
    body = {"persistent": {"plugins.ml_commons.stream_enabled": True}}
    answer = await cluster.client.put("/_cluster/settings", json=body)
    assert answer.json() == {"acknowledged": True, **body, "transient": {}}
    nested = {"persistent": {"plugins": {"ml_commons": {"stream_enabled": "false"}}}}
    assert reason(await cluster.client.put("/_cluster/settings", json=nested))[0] == 400
    trust = {"persistent": {"plugins.ml_commons.trusted_connector_endpoints_regex": ["^.*$"]}}
    assert reason(await cluster.client.put("/_cluster/settings", json=trust))[0] == 400
