"""Official clients as they are installed: opensearch-py, and the curl lines of the proposal that began all this."""

from __future__ import annotations

import asyncio
import json
import shutil

import pytest
from opensearchpy import AsyncOpenSearch, NotFoundError, OpenSearch

from tests.opensearch.cluster import (
    ML,
    OPENAI,
    Cluster,
    as_json,
    chat,
    completion,
    contents,
    openai_connector,
    streamed,
)
from tests.upstreams.byte_server import serving

QUESTION = "Can you summarize Prince Hamlet of William Shakespeare in around 1000 words?"
CREATE = """
{
    "name": "OpenAI Chat Connector",
    "description": "The connector to public OpenAI model service for GPT 3.5",
    "version": 1,
    "protocol": "http",
    "parameters": {
        "endpoint": "%s",
        "model": "gpt-3.5-turbo"
    },
    "credential": {
        "openAI_key": "<your_token_id>"
    },
    "actions": [
        {
            "action_type": "predict",
            "method": "POST",
            "url": "http://${parameters.endpoint}/v1/chat/completions",
            "headers": {
                "Authorization": "Bearer ${credential.openAI_key}"
            },
            "request_body": "{ \\"model\\": \\"${parameters.model}\\", \\"messages\\": ${parameters.messages} }"
        }
    ]
}
"""
REGISTER = """
{
    "name": "openai gpt 3.5 turbo",
    "function_name": "remote",
    "description": "openai model",
    "connector_id": "%s"
}
"""
PREDICT = """
{
  "parameters": {
    "messages": [
      {
        "role": "system",
        "content": "You are a helpful assistant."
      },
      {
        "role": "user",
        "content": "Can you summarize Prince Hamlet of William Shakespeare in around 1000 words?"
      }
    ]%s
  }
}
"""


async def test_case_33_opensearch_py_runs_the_whole_way(cluster: Cluster) -> None:
    async with serving(as_json(completion("To be"))) as remote:

        def walk() -> None:
            host = {"host": "127.0.0.1", "port": cluster.service.port}
            client = OpenSearch(hosts=[host], http_auth=("admin", "any"), use_ssl=False)
            ml = client.plugins.ml
            connector = ml.create_connector(body=openai_connector(remote.url))["connector_id"]
            body = {"name": "m", "function_name": "remote", "connector_id": connector}
            registered = ml.register_model(body=body, params={"deploy": "true"})
            model = registered["model_id"]
            assert ml.get_task(task_id=registered["task_id"])["state"] == "COMPLETED"
            assert ml.get_model(model_id=model)["model_state"] == "DEPLOYED"
            asked = {"parameters": {"messages": [{"role": "user", "content": QUESTION}]}}
            result = ml.predict_model(model_id=model, body=asked)["inference_results"][0]["output"][0]
            assert result["dataAsMap"]["choices"][0]["message"]["content"] == "To be"
            assert ml.search_models(body={"query": {"match_all": {}}})["hits"]["total"]["value"] >= 1
            with pytest.raises(NotFoundError) as missing:
                ml.get_model(model_id="nobody")
            assert missing.value.status_code == 404
            assert missing.value.error == "status_exception"
            ml.undeploy_model(model_id=model)
            ml.delete_model(model_id=model)
            client.http.delete(f"{ML}/connectors/{connector}")
            client.close()

        await asyncio.to_thread(walk)


async def test_opensearch_py_learns_who_we_are_and_sniffs_the_address_that_it_had(cluster: Cluster) -> None:
    async with AsyncOpenSearch(cluster.service.url, sniff_on_start=True) as client:
        assert await client.ping() is True
        said = await client.info()
        assert (said["cluster_name"], said["version"]["distribution"]) == ("polywire", "opensearch")
        assert (await client.cluster.health(wait_for_status="green"))["status"] == "green"
        asked = {"parameters": {"messages": [{"role": "user", "content": "hi"}]}}
        whole = await client.plugins.ml.predict_model(model_id="echo", body=asked)
        assert whole["inference_results"]
        hosts = [connection.host for connection in client.transport.connection_pool.connections]
    assert hosts == [cluster.service.url]


@pytest.mark.parametrize(
    "headers",
    [
        {"user-agent": "opensearch-js/3.9.0 (linux 6.18.44-x64; Node.js v20.20.2)"},
        {"user-agent": "opensearch-java/3.2.0 (Java/21)", "accept": "application/json"},
        {"user-agent": "curl/7.88.1", "accept": "application/json"},
    ],
    ids=["js", "java", "curl"],
)
async def test_the_root_says_who_we_are_to_each_client(cluster: Cluster, headers: dict[str, str]) -> None:
    # httpx adds an `Accept` of its own where none is given, which no client here is known by.
    answer = await cluster.client.get("/?pretty", headers=headers)
    said = answer.json()
    assert answer.headers["content-type"] == "application/json; charset=UTF-8"
    assert answer.text.startswith('{\n  "name": "polywire"')
    assert said["tagline"] == "The OpenSearch Project: https://opensearch.org/"
    # Java's client takes no answer that lacks one of these.
    assert {"number", "build_date", "build_hash", "build_type", "lucene_version"} <= said["version"].keys()
    head = await cluster.client.head("/", headers=headers)
    assert (head.status_code, head.content) == (200, b"")


async def test_the_page_stays_where_a_browser_or_nobody_in_particular_asks(cluster: Cluster) -> None:
    browser = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
    for accept in (browser, "*/*"):
        answer = await cluster.client.get("/", headers={"accept": accept})
        assert answer.status_code == 200
        assert "swagger-ui" in answer.text


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed: apt-get install curl")
async def test_the_curl_lines_of_the_proposal(cluster: Cluster) -> None:
    async def curl(path: str, data: str, *headers: str) -> bytes:
        arguments = ["-sS", "-X", "POST", f"{cluster.service.url}{ML}{path}", "-H", "Content-Type: application/json"]
        for header in headers:
            arguments += ["-H", header]
        process = await asyncio.create_subprocess_exec(
            "curl", *arguments, f"-d{data}", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        output, complaint = await process.communicate()
        assert complaint == b""
        return output

    async with serving(streamed(*chat("Prince", " Hamlet")), as_json(completion("Hamlet"))) as remote:
        created = await curl("/connectors/_create", CREATE % f"127.0.0.1:{remote.port}")
        connector = json.loads(created)["connector_id"]
        registered = await curl("/models/_register?deploy=true", REGISTER % connector)
        model = json.loads(registered)["model_id"]
        interface = f',\n    "_llm_interface": "{OPENAI}"'
        body = await curl(f"/models/{model}/_predict/stream", PREDICT % interface, "Transfer-Encoding: chunked")
        assert contents(body) == ["Prince", " Hamlet"]
        whole = json.loads(await curl(f"/models/{model}/_predict", PREDICT % ""))
        message = whole["inference_results"][0]["output"][0]["dataAsMap"]["choices"][0]["message"]
        assert message["content"] == "Hamlet"
        assert remote.requests[0].headers["authorization"] == "Bearer <your_token_id>"
        assert json.loads(remote.requests[0].body)["messages"][1]["content"] == QUESTION
