"""What the tests of this wire say to the service, and what their fake remote services answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from tests.running import Service
from tests.upstreams.byte_server import Answer, Framing, Step

ML = "/_plugins/_ml"
OPENAI = "openai/v1/chat/completions"
BEDROCK = "bedrock/converse/claude"
KEY = "sk-canary-0123456789"
TEMPLATE = '{ "model": "${parameters.model}", "messages": ${parameters.messages} }'
CONVERSE = (
    '{"messages":[{"role":"user","content":[{"type":"text","text":"${parameters.inputs}"}]}],'
    '"inferenceConfig":{"maxTokens":7,"temperature":0.5,"topP":0.9,"stopSequences":["END"]}}'
)
EVENT_STREAM = {"Content-Type": "text/event-stream"}
HELLO = [{"role": "user", "content": "Hello world"}]


def openai_connector(url: str, **changes: Any) -> dict[str, Any]:
    """The seed's connector, leading to `url`."""
    action = {
        "action_type": "predict",
        "method": "POST",
        "url": f"{url}/v1/chat/completions",
        "headers": {"Authorization": "Bearer ${credential.openAI_key}"},
        "request_body": TEMPLATE,
    }
    body: dict[str, Any] = {
        "name": "OpenAI Chat Connector",
        "description": "The connector to public OpenAI model service for GPT 3.5",
        "version": 1,
        "protocol": "http",
        "parameters": {"endpoint": "api.openai.com", "model": "gpt-3.5-turbo"},
        "credential": {"openAI_key": KEY},
        "actions": [action | changes.pop("action", {})],
    }
    return body | changes


def bedrock_connector(url: str, **changes: Any) -> dict[str, Any]:
    """The documentation's connector to Bedrock, with an inferenceConfig, leading to `url`."""
    action = {
        "action_type": "predict",
        "method": "POST",
        "headers": {"content-type": "application/json"},
        "url": f"{url}/model/${{parameters.model}}/converse",
        "request_body": CONVERSE,
    }
    body: dict[str, Any] = {
        "name": "Amazon Bedrock Converse",
        "version": 1,
        "protocol": "aws_sigv4",
        "credential": {"access_key": "AKIDCANARY", "secret_key": "canary/secret", "session_token": "canary+token"},
        "parameters": {"region": "us-east-1", "service_name": "bedrock", "model": "us.anthropic.claude-3:0"},
        "actions": [action | changes.pop("action", {})],
    }
    return body | changes


@dataclass(frozen=True)
class Cluster:
    """The service as a client of OpenSearch sees it."""

    service: Service
    client: httpx.AsyncClient

    async def create(self, connector: Mapping[str, Any]) -> str:
        """The id of a new connector."""
        answer = await self.client.post(f"{ML}/connectors/_create", json=connector)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["connector_id"])

    async def register(self, connector: Mapping[str, Any], name: str = "a model", *, deploy: bool = True) -> str:
        """The id of a new model on a new connector."""
        body = {"name": name, "function_name": "remote", "connector_id": await self.create(connector)}
        answer = await self.client.post(f"{ML}/models/_register?deploy={json.dumps(deploy)}", json=body)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["model_id"])

    async def predict(self, model: str, parameters: Mapping[str, Any]) -> httpx.Response:
        return await self.client.post(f"{ML}/models/{model}/_predict", json={"parameters": parameters})

    async def stream(self, model: str, parameters: Mapping[str, Any]) -> httpx.Response:
        """A whole streamed answer."""
        return await self.client.post(f"{ML}/models/{model}/_predict/stream", json={"parameters": parameters})


def chat(*texts: str, reason: str = "stop", done: bool = True) -> list[bytes]:
    """A streamed chat completion in pieces, its role first as OpenAI sends it."""
    pieces = [chunk({"role": "assistant", "content": ""}), *(chunk({"content": text}) for text in texts)]
    return [*pieces, chunk({}, reason), *([b"data: [DONE]\n\n"] if done else [])]


def chunk(delta: Mapping[str, Any], reason: str | None = None) -> bytes:
    """One chunk of a chat completion."""
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "gpt-3.5-turbo", "choices": [choice]}
    return f"data: {json.dumps(body, ensure_ascii=False)}\n\n".encode()


def streamed(*steps: Step) -> Answer:
    return Answer(steps, headers=EVENT_STREAM)


def completion(text: str = "Hi") -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {"id": "chatcmpl-1", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


def as_json(value: Any, status: int = 200, **headers: str) -> Answer:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Answer([json.dumps(value).encode()], status, {"Content-Type": "application/json", **named}, Framing.LENGTH)


def frames(body: bytes) -> list[dict[str, Any]]:
    """The frames of a streamed answer, by a strict JSON parser; nothing but frames may be there."""
    *parts, end = body.split(b"\n\n")
    assert end == b""
    assert all(part.startswith(b"data: ") and b"\n" not in part for part in parts)
    return [json.loads(part.removeprefix(b"data: ")) for part in parts]


def data_map(frame: Mapping[str, Any]) -> dict[str, Any]:
    (result,) = frame["inference_results"]
    (output,) = result["output"]
    assert output["name"] == "response"
    return dict(output["dataAsMap"])


def contents(body: bytes) -> list[str]:
    """The texts of a stream that ended well, without the last frame's empty one."""
    *deltas, last = [data_map(frame) for frame in frames(body)]
    assert last == {"content": "", "is_last": True}
    assert not any(delta["is_last"] for delta in deltas)
    return [delta["content"] for delta in deltas]


def reason(answer: httpx.Response) -> tuple[int, str, str]:
    """Status, type and reason of a refusal in OpenSearch's shape."""
    body = answer.json()
    assert answer.headers["content-type"] == "application/json; charset=UTF-8"
    assert body["status"] == answer.status_code
    cause = {key: body["error"][key] for key in ("type", "reason")}
    assert body["error"]["root_cause"] == [cause]
    return answer.status_code, cause["type"], cause["reason"]
