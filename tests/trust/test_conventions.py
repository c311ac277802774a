"""Each client brings its key in its own way, on every wire; official clients where there are any."""

from __future__ import annotations

import base64
import json
from contextlib import closing
from typing import Any

import boto3
import grpc
import httpx
import openai
import pytest
from bentoml import SyncHTTPClient
from botocore.config import Config
from botocore.exceptions import ClientError
from opensearch.protobufs.services.ml_service_pb2_grpc import MLServiceStub
from opensearchpy import OpenSearch
from opensearchpy.exceptions import AuthenticationException
from replicate.client import Client as ReplicateClient
from replicate.exceptions import ReplicateError
from websockets.exceptions import InvalidStatus

from tests.opensearch.calls import asked, read
from tests.running import Service
from tests.sockets import socket
from tests.trust.conftest import ADMIN, ALICE, BOB
from tests.trust.signing import signed_headers
from wires.auth import KEY_PROTOCOL

ML = "/_plugins/_ml"
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "generate": ("/generate", {"prompt": "hi"}),
    "openai": ("/v1/chat/completions", {"model": "default", "messages": [{"role": "user", "content": "hi"}]}),
    "replicate": ("/v1/models/test/echo/predictions", {"input": {"prompt": "hi"}}),
    "opensearch": (f"{ML}/models/default/_predict/stream", {"parameters": {"inputs": "hi"}}),
    "sagemaker": ("/invocations", {"inputs": "hi"}),
    "runtime": ("/endpoints/default/invocations", {"inputs": "hi"}),
    "lambda": ("/lambda", {"inputs": "hi"}),
}


def conventions(key: str, url: str, content: bytes) -> dict[str, dict[str, str]]:
    basic = base64.b64encode(f"anyone:{key}".encode()).decode()
    return {
        "bearer": {"authorization": f"Bearer {key}"},
        "lower case": {"authorization": f"bearer {key}"},
        "token": {"authorization": f"Token {key}"},
        "basic": {"authorization": f"Basic {basic}"},
        "api-key": {"api-key": key},
        "x-api-key": {"x-api-key": key},
        "signed": signed_headers("POST", url, content, key, key),
    }


@pytest.mark.parametrize("wire", list(CALLS))
async def test_every_convention_opens_every_wire_and_a_wrong_key_none(guarded: Service, wire: str) -> None:
    path, body = CALLS[wire]
    async with httpx.AsyncClient(base_url=guarded.url, timeout=20) as client:
        content = json.dumps(body).encode()
        as_json = {"content-type": "application/json"}
        for name, headers in conventions(ALICE, guarded.url + path, content).items():
            answer = await client.post(path, content=content, headers=as_json | headers)
            assert answer.status_code in (200, 201), (name, answer.text)
        for name, headers in [*conventions("wrong", guarded.url + path, content).items(), ("none", {})]:
            answer = await client.post(path, content=content, headers=as_json | headers)
            assert answer.status_code == (403 if wire == "runtime" else 401), (name, answer.text)


def test_bentoml_client(guarded: Service) -> None:
    with SyncHTTPClient(guarded.url, token=BOB) as client:
        assert "".join(client.generate(prompt="hi")).startswith("Hello")


def test_openai_client(guarded: Service) -> None:
    def asking(key: str) -> str | None:
        with openai.OpenAI(base_url=f"{guarded.url}/v1", api_key=key, max_retries=0) as client:
            messages: Any = [{"role": "user", "content": "hi"}]
            return client.chat.completions.create(model="default", messages=messages).choices[0].message.content

    assert (asking(BOB) or "").startswith("Hello")
    with pytest.raises(openai.AuthenticationError) as refused:
        asking("wrong")
    assert refused.value.code == "invalid_api_key"


def test_replicate_client(guarded: Service) -> None:
    client = ReplicateClient(api_token=BOB, base_url=guarded.url)
    assert "".join(map(str, client.stream("test/echo", input={"prompt": "hi"}))) == "hi"
    stranger = ReplicateClient(api_token="wrong", base_url=guarded.url)
    with pytest.raises(ReplicateError) as refused:
        stranger.predictions.list()
    assert refused.value.status == 401
    for used in (client, stranger):
        used._client.close()


def test_opensearch_client(guarded: Service) -> None:
    def asking(key: str) -> Any:
        with OpenSearch(guarded.url, http_auth=("admin", key), max_retries=0) as client:
            return client.transport.perform_request("POST", f"{ML}/models/_search", body={"query": {"match_all": {}}})

    assert asking(BOB)["hits"]["total"]["value"] == 0
    with pytest.raises(AuthenticationException):
        asking("wrong")


def test_boto3(guarded: Service) -> None:
    def asking(key: str) -> bytes:
        options = Config(retries={"max_attempts": 1}, parameter_validation=True)
        client = boto3.client(
            "sagemaker-runtime",
            region_name="us-east-1",
            endpoint_url=guarded.url,
            aws_access_key_id=key,
            aws_secret_access_key=key,
            config=options,
        )
        with closing(client):
            content = json.dumps({"inputs": "hi"})
            answer = client.invoke_endpoint(EndpointName="default", Body=content, ContentType="application/json")
            with closing(answer["Body"]) as body:
                return bytes(body.read())

    assert b"Hello" in asking(BOB)
    with pytest.raises(ClientError) as refused:
        asking("wrong")
    assert refused.value.response["Error"]["Code"] == "UnrecognizedClientException"


async def test_grpc_metadata(guarded: Service) -> None:
    request = asked("default", inputs="hi")
    async with grpc.aio.insecure_channel(f"127.0.0.1:{guarded.grpc_port}") as channel:
        stub = MLServiceStub(channel)
        _, code, _ = await read(stub.PredictModelStream(request, metadata=(("authorization", f"Bearer {BOB}"),)))
        assert code == grpc.StatusCode.OK
        for metadata in ((), (("authorization", "Bearer wrong"),), (("x-forwarded-for", "127.0.0.1"),)):
            _, code, _ = await read(stub.PredictModelStream(request, metadata=metadata))
            assert code == grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("path", ["/ws", "/invocations-bidirectional-stream"])
async def test_sockets_by_header_and_by_sub_protocol(guarded: Service, path: str) -> None:
    async with socket(guarded, path=path, additional_headers={"authorization": f"Bearer {BOB}"}) as client:
        assert (await client.ask(type="ping")).kinds == ["pong"]
    async with socket(guarded, path=path, subprotocols=["polywire.v1", f"{KEY_PROTOCOL}{BOB}"]) as client:
        assert (await client.ask(type="ping")).kinds == ["pong"]
        assert client.connection.subprotocol in (None, "polywire.v1")
    for offered in (None, ["polywire.v1", f"{KEY_PROTOCOL}wrong"]):
        with pytest.raises(InvalidStatus) as refused:
            async with socket(guarded, path=path, subprotocols=offered):
                raise AssertionError("the handshake was accepted")
        assert refused.value.response.status_code == 401
    with pytest.raises(InvalidStatus):
        async with socket(guarded, f"?key={ALICE}&api_key={ALICE}", path=path):
            raise AssertionError("a key in the query opened the socket")


async def test_only_the_admin_key_makes_connectors(guarded: Service) -> None:
    body = {
        "name": "c",
        "version": 1,
        "protocol": "http",
        "parameters": {},
        "credential": {"key": "k"},
        "actions": [
            {"action_type": "predict", "method": "POST", "url": "https://api.openai.com/v1/x", "request_body": "{}"}
        ],
    }
    async with httpx.AsyncClient(base_url=guarded.url, timeout=20) as client:
        for key, status in ((ALICE, 403), (ADMIN, 200)):
            answer = await client.post(
                f"{ML}/connectors/_create", json=body, headers={"authorization": f"Bearer {key}"}
            )
            assert answer.status_code == status, answer.text


async def test_what_another_key_made_does_not_exist(guarded: Service) -> None:
    alice, bob = ({"authorization": f"Bearer {key}"} for key in (ALICE, BOB))
    async with httpx.AsyncClient(base_url=guarded.url, timeout=20) as client:
        made = await client.post("/v1/models/test/echo/predictions", json={"input": {"prompt": "hi"}}, headers=alice)
        path = f"/v1/predictions/{made.json()['id']}"
        for method, target in (("GET", path), ("POST", f"{path}/cancel")):
            assert (await client.request(method, target, headers=bob)).status_code == 404
            assert (await client.request(method, target, headers=alice)).status_code == 200
        listed = (await client.get("/v1/predictions", headers=bob)).json()["results"]
        assert made.json()["id"] not in [prediction["id"] for prediction in listed]
