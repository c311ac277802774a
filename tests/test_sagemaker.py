"""The SageMaker wires: container contract, runtime API with boto3, Lambda function URL with the seed's payload."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import boto3
import httpx
import pytest
from botocore.config import Config
from botocore.eventstream import EventStreamBuffer
from botocore.exceptions import ClientError, EventStreamError

from tests.running import Service
from tests.sockets import socket
from wires.sagemaker.framing import model_stream_error, payload_part

SEED_PAYLOAD = (
    '{"model": "tgi", "messages": [{"role": "user","content": "플레이리스트 만들어줘"}], '
    '"max_tokens": 300, "temperature": 0.1, "top_p": 0.2, "stream": true}'
)
SEED_HASH = "31f9a2c7269bd4e7d8e75a06f765693d2000ed1bb71c42e530b3912c28be73ad"
HELLO = "Hello 안녕하세요 👋🏽"


@pytest.fixture
def runtime(service: Service) -> Iterator[Any]:
    client = boto3.client(
        "sagemaker-runtime",
        endpoint_url=service.url,
        region_name="us-east-1",
        aws_access_key_id="unused",
        aws_secret_access_key="unused",
        config=Config(retries={"total_max_attempts": 1}),
    )
    yield client
    client.close()


def events(body: str) -> list[Any]:
    """The JSON of every frame; each is `data:` without a space and ends with an empty line."""
    assert body.endswith("\n\n")
    frames = body.removesuffix("\n\n").split("\n\n")
    assert all(frame.startswith("data:") and not frame.startswith("data: ") for frame in frames)
    return [json.loads(frame[5:]) if frame != "data:[DONE]" else "[DONE]" for frame in frames]


def invoke(service: Service, path: str = "/invocations", **body: Any) -> httpx.Response:
    return httpx.post(service.url + path, json=body, timeout=10)


def test_ping_answers_both_platforms(service: Service) -> None:
    answer = httpx.get(f"{service.url}/ping").json()
    assert answer["status"] in ("Healthy", "HealthyBusy")
    assert isinstance(answer["time_of_last_update"], int)


def test_messages_stream_as_tgi_writes_them(service: Service) -> None:
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "model": "hello", "stream": True}
    *chunks, done = events(invoke(service, **body).text)
    assert done == "[DONE]"
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == HELLO
    assert {chunk["choices"][0]["delta"]["role"] for chunk in chunks} == {"assistant"}
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, None, "stop"]
    whole = invoke(service, messages=body["messages"], model="hello").json()
    assert whole["choices"][0]["message"]["content"] == HELLO


def test_inputs_are_tgis_generate(service: Service) -> None:
    body: dict[str, Any] = {"inputs": "hi", "model": "hello", "parameters": {"max_new_tokens": 5, "details": True}}
    assert invoke(service, **body).json()[0]["generated_text"] == HELLO
    stream = events(invoke(service, stream=True, **body).text)
    assert "".join(event["token"]["text"] for event in stream) == HELLO
    assert [event["index"] for event in stream] == [1, 2, 3, 4]
    assert [event["generated_text"] for event in stream] == [None, None, None, HELLO]
    assert stream[-1]["details"]["finish_reason"] == "eos_token"


def test_prompt_is_a_legacy_completion(service: Service) -> None:
    assert invoke(service, prompt="hi", model="hello").json()["choices"][0]["text"] == HELLO
    *chunks, done = events(invoke(service, prompt="hi", model="hello", stream=True).text)
    assert done == "[DONE]"
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == HELLO


@pytest.mark.parametrize("form", [{"inputs": "hi"}, {"prompt": "hi"}, {"messages": [{"role": "user", "content": "h"}]}])
@pytest.mark.parametrize("model", ["fails-midway", "faults", "truncated"])
def test_a_failure_midway_is_in_the_stream(service: Service, form: dict[str, Any], model: str) -> None:
    """Case R1, mission row 83."""
    *_, last = events(invoke(service, model=model, stream=True, **form).text)
    assert set(last) == {"error", "error_type"}


def test_refusals_have_tgis_shape(service: Service) -> None:
    for body, status, kind in (
        ({}, 422, "validation"),
        ({"inputs": 7}, 422, "validation"),
        ({"inputs": "hi", "parameters": {"max_new_tokens": 0}}, 422, "validation"),
        ({"inputs": "hi", "model": "nope"}, 404, "validation"),
        ({"inputs": "hi", "model": "fails-first", "stream": True}, 429, "overloaded"),
    ):
        answer = invoke(service, **body)
        assert (answer.status_code, answer.json()["error_type"]) == (status, kind)
    assert httpx.post(f"{service.url}/invocations", content=b"{").status_code == 422
    assert httpx.get(f"{service.url}/invocations").status_code == 405


def test_boto3_reads_a_whole_answer_and_a_stream(runtime: Any) -> None:
    """Mission rows 74 and 94."""
    body = json.dumps({"inputs": "hi"}).encode()
    whole = runtime.invoke_endpoint(EndpointName="hello", Body=body, ContentType="application/json")
    assert json.loads(whole["Body"].read())[0]["generated_text"] == HELLO
    streamed = runtime.invoke_endpoint_with_response_stream(
        EndpointName="hello", Body=json.dumps({"inputs": "hi", "stream": True}).encode(), ContentType="application/json"
    )
    assert streamed["ContentType"] == "text/event-stream"
    data = b"".join(part["PayloadPart"]["Bytes"] for part in streamed["Body"])
    assert events(data.decode())[-1]["generated_text"] == HELLO


def test_boto3_raises_what_went_wrong(runtime: Any) -> None:
    body = json.dumps({"inputs": "hi", "stream": True}).encode()
    with pytest.raises(ClientError) as unknown:
        runtime.invoke_endpoint_with_response_stream(EndpointName="nope", Body=body)
    assert unknown.value.response["Error"]["Code"] == "ValidationError"
    with pytest.raises(ClientError) as limited:
        runtime.invoke_endpoint(EndpointName="fails-first", Body=body)
    assert limited.value.response["Error"]["Code"] == "ThrottlingException"
    with closing(
        runtime.invoke_endpoint_with_response_stream(EndpointName="fails-midway", Body=body)["Body"]
    ) as answer:
        parts = iter(answer)
        assert b"Hello" in next(parts)["PayloadPart"]["Bytes"]
        with pytest.raises(EventStreamError, match="It broke"):
            next(parts)


def test_the_function_url_checks_the_payloads_hash(service: Service) -> None:
    """Mission rows 86 to 88 and 93: the seed's curl line as it is but for the host."""
    assert hashlib.sha256(SEED_PAYLOAD.encode()).hexdigest() == SEED_HASH
    curl = ["curl", "-sN", "-X", "POST", "-H", "Content-Type: application/json", "-d", SEED_PAYLOAD]
    right = subprocess.run(
        [*curl, "-H", f"x-amz-content-sha256: {SEED_HASH}", f"{service.url}/lambda"], capture_output=True, check=True
    )
    text = "".join(
        event["choices"][0]["delta"].get("content", "") for event in events(right.stdout.decode()) if event != "[DONE]"
    )
    assert text == HELLO
    for declared, status in ((SEED_HASH.upper(), 200), ("0" * 64, 403), ("UNSIGNED-PAYLOAD", 200), ("nonsense", 400)):
        answer = httpx.post(
            f"{service.url}/lambda", content=SEED_PAYLOAD.encode(), headers={"x-amz-content-sha256": declared}
        )
        assert answer.status_code == status
        if status == 403:
            assert answer.json()["type"] == "InvalidSignatureException"
    assert httpx.post(f"{service.url}/lambda", content=SEED_PAYLOAD.encode()).status_code == 200


async def test_sagemakers_sidecar_may_send_json_in_binary_frames(service: Service) -> None:
    async with socket(service, path="/invocations-bidirectional-stream") as client:
        await client.connection.send(json.dumps({"type": "chat", "text": "hi", "model": "hello"}).encode())
        assert (await client.hear()).text == HELLO


def test_frames_are_what_the_contracts_worked_examples_say() -> None:
    part = payload_part('data: {"t":"안녕"}\n\n'.encode())
    assert part.hex().startswith("0000007f000000590c1741270b3a6576656e742d74797065")
    assert part.hex().endswith("1e809cee")
    error = model_stream_error("container died", "StreamBroken")
    decoded = EventStreamBuffer()
    for byte in part + error:
        decoded.add_data(bytes([byte]))
    messages = [message.to_response_dict() for message in decoded]
    assert messages[0]["headers"][":event-type"] == "PayloadPart"
    assert json.loads(messages[1]["body"]) == {"Message": "container died", "ErrorCode": "StreamBroken"}
