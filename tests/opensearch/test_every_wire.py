"""A registered model is a model of every wire, with its template and its caller's key."""

from __future__ import annotations

import json
from typing import Any

import pytest
from websockets.asyncio.client import connect

from tests.opensearch.cluster import (
    KEY,
    Cluster,
    as_json,
    bedrock_connector,
    chat,
    openai_connector,
    streamed,
)
from tests.upstreams.aws_fake import CONVERSE_TEXT, SENTENCE, stream
from tests.upstreams.byte_server import serving

TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": 'say "${parameters.model}"'},
    {"role": "assistant", "content": "no"},
    {"role": "user", "content": "please"},
]


async def say(cluster: Cluster, model: str, **fields: Any) -> str:
    """The text of an answer over the OpenAI wire."""
    body = {"model": model, "messages": TALK, **fields}
    answer = await cluster.client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


async def test_an_openai_client_talks_to_a_registered_model(cluster: Cluster) -> None:
    async with serving(streamed(*chat("ok"))) as remote:
        model = await cluster.register(openai_connector(remote.url))
        assert await say(cluster, model, max_tokens=5, temperature=0) == "ok"
        sent = json.loads(remote.requests[0].body)
        assert (sent["model"], sent["messages"], sent["stream"]) == ("gpt-3.5-turbo", TALK, True)
        assert (sent["max_tokens"], sent["temperature"]) == (5, 0)
        assert remote.requests[0].headers["authorization"] == f"Bearer {KEY}"


async def test_generate_talks_to_a_registered_model(cluster: Cluster) -> None:
    template = '{"model": "${parameters.model}", "messages": [{"role": "user", "content": "${parameters.prompt}"}]}'
    async with serving(streamed(*chat("ok"))) as remote:
        model = await cluster.register(openai_connector(remote.url, action={"request_body": template}))
        answer = await cluster.client.post(
            "/generate", json={"prompt": 'a "quoted" ${parameters.model}', "model": model}
        )
        assert answer.text == "ok"
        sent = json.loads(remote.requests[0].body)["messages"]
        assert sent == [{"role": "user", "content": 'a "quoted" ${parameters.model}'}]


async def test_a_socket_and_a_prediction_talk_to_a_registered_model(cluster: Cluster) -> None:
    async with serving(streamed(*chat("ok"))) as remote:
        model = await cluster.register(openai_connector(remote.url))
        async with connect(f"{cluster.service.ws_url}/ws") as socket:
            await socket.send(json.dumps({"type": "chat", "text": "hi", "model": model, "speak": False}))
            messages = [json.loads(await socket.recv()) for _ in range(3)]
            assert [message["type"] for message in messages] == ["started", "text", "finished"]
        body = {"version": model, "input": {"prompt": "hi"}}
        answer = await cluster.client.post("/v1/predictions", json=body, headers={"prefer": "wait"})
        assert "".join(answer.json()["output"]) == "ok"


async def test_a_whole_conversation_reaches_bedrock(cluster: Cluster) -> None:
    async with serving(stream(*CONVERSE_TEXT)) as remote:
        model = await cluster.register(bedrock_connector(remote.url))
        assert await say(cluster, model, max_tokens=99) == SENTENCE
        sent = json.loads(remote.requests[0].body)
        assert [turn["role"] for turn in sent["messages"]] == ["user", "assistant", "user"]
        assert sent["system"] == [{"text": "Be brief."}]
        assert sent["inferenceConfig"] == {"maxTokens": 99, "temperature": 0.5, "topP": 0.9, "stopSequences": ["END"]}


async def test_a_registered_model_is_in_the_list_of_models(cluster: Cluster) -> None:
    model = await cluster.register(openai_connector("https://api.openai.com"))
    listed = (await cluster.client.get("/v1/models")).json()["data"]
    assert model in [item["id"] for item in listed]
    assert (await cluster.client.get(f"/v1/models/{model}")).json()["owned_by"] == "connector"


@pytest.mark.parametrize("status", [401, 429])
async def test_a_refusal_reaches_an_openai_client_with_its_status(cluster: Cluster, status: int) -> None:
    async with serving(as_json({"error": {"message": f"bad {KEY}"}}, status)) as remote:
        model = await cluster.register(openai_connector(remote.url))
        answer = await cluster.client.post("/v1/chat/completions", json={"model": model, "messages": TALK})
        assert answer.status_code == status
        assert KEY not in answer.text
