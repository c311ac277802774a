"""PredictModelStream with the published stubs, beside the same question over REST."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest
from google.protobuf import json_format
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from opensearch.protobufs.schemas import common_pb2
from opensearch.protobufs.services.ml_service_pb2_grpc import MLServiceStub

from tests.opensearch.calls import asked, content, read
from tests.opensearch.cluster import (
    BEDROCK,
    HELLO,
    KEY,
    OPENAI,
    Cluster,
    as_json,
    bedrock_connector,
    chat,
    chunk,
    contents,
    openai_connector,
    streamed,
)
from tests.running import Service
from tests.upstreams.aws_fake import CONVERSE_TEXT, refusal, stream
from tests.upstreams.byte_server import serving

MESSAGES = [{"role": "system", "content": "You are a helpful assistant."}, {"role": "user", "content": "Hamlet?"}]
SERVICE = "org.opensearch.protobufs.services.MLService"
Code = grpc.StatusCode


@pytest.fixture
async def stub(ml_service: Service) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{ml_service.grpc_port}") as channel:
        yield MLServiceStub(channel)


async def test_case_32_wire_bytes(cluster: Cluster, stub: Any) -> None:
    async with serving(streamed(*chat("Hello", "한"))) as remote:
        model = await cluster.register(openai_connector(remote.url))
        messages, code, _ = await read(stub.PredictModelStream(asked(model, messages=HELLO, x_llm_interface=OPENAI)))
        assert code is Code.OK
        assert [message.SerializeToString().hex() for message in messages] == [
            "0a170a150a08726573706f6e73653a090a0548656c6c6f1000",
            "0a150a130a08726573706f6e73653a070a03ed959c1000",
            "0a120a100a08726573706f6e73653a040a001001",
        ]
        shown = json_format.MessageToDict(messages[0])
        output = {"name": "response", "dataAsMap": {"content": "Hello", "isLast": False}}
        assert shown == {"inferenceResults": [{"output": [output]}]}


async def test_rest_and_grpc_give_the_same_text_in_the_same_pieces(cluster: Cluster, stub: Any) -> None:
    async with serving(streamed(*chat("One", " 둘", " three 👋🏽"))) as remote:
        model = await cluster.register(openai_connector(remote.url))
        rest = await cluster.stream(model, {"messages": MESSAGES, "_llm_interface": OPENAI})
        call = stub.PredictModelStream(asked(model, messages=MESSAGES, x_llm_interface=OPENAI))
        messages, _, _ = await read(call)
        assert [content(message) for message in messages[:-1]] == contents(rest.content)
        assert remote.requests[0].body == remote.requests[1].body


async def test_both_requests_of_the_documentation_stream(cluster: Cluster, stub: Any) -> None:
    async with serving(streamed(*chat("To be"))) as openai, serving(stream(*CONVERSE_TEXT)) as bedrock:
        text = """{"model_id": "%s", "ml_predict_model_stream_request_body": {"parameters": %s}}"""
        for connector, parameters in (
            (
                openai_connector(openai.url),
                '{"messages": [{"role": "system", "content": "You are a helpful assistant."}, {"role": "user",'
                '"content": "Can you summarize Prince Hamlet of William Shakespeare in around 100 words?"}],'
                '"x_llm_interface": "openai/v1/chat/completions"}',
            ),
            (
                bedrock_connector(bedrock.url),
                '{"inputs": "Can you summarize Prince Hamlet of William Shakespeare in around 100 words?",'
                '"x_llm_interface": "bedrock/converse/claude"}',
            ),
        ):
            model = await cluster.register(connector)
            request = json_format.Parse(text % (model, parameters), common_pb2.MlPredictModelStreamRequest())
            messages, code, _ = await read(stub.PredictModelStream(request))
            assert code is Code.OK
            assert messages[-1].inference_results[0].output[0].data_as_map.is_last


def test_a_blocking_stub_reads_message_by_message(ml_service: Service) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{ml_service.grpc_port}") as channel:
        request = asked("hello", inputs="hi")
        call: Iterator[Any] = MLServiceStub(channel).PredictModelStream(request, metadata=(("x-request-id", "mine"),))
        assert dict(call.initial_metadata())["x-request-id"] == "mine"  # type: ignore[attr-defined]
        assert "".join(map(content, call)) == "Hello 안녕하세요 👋🏽"


async def test_case_29_what_a_request_may_miss(cluster: Cluster, stub: Any) -> None:
    request = common_pb2.MlPredictModelStreamRequest
    assert await read(stub.PredictModelStream(request())) == ([], Code.INVALID_ARGUMENT, "model_id is required")
    words = "MlPredictModelStreamRequest must have request body"
    assert await read(stub.PredictModelStream(request(model_id="m"))) == ([], Code.INVALID_ARGUMENT, words)
    empty = common_pb2.MLPredictModelStreamRequestBody()
    bodiless = request(model_id="m", ml_predict_model_stream_request_body=empty)
    words = "Request body must have parameters"
    assert await read(stub.PredictModelStream(bodiless)) == ([], Code.INVALID_ARGUMENT, words)
    unknown = await read(stub.PredictModelStream(asked("nobody", inputs="hi")))
    assert unknown == ([], Code.NOT_FOUND, "Failed to find model")
    async with serving(streamed(*chat("Hi"))) as remote:
        model = await cluster.register(openai_connector(remote.url))
        _, code, _ = await read(stub.PredictModelStream(asked(model, inputs="hi", x_llm_interface=OPENAI)))
        assert code is Code.INVALID_ARGUMENT


async def test_case_29_a_bad_key_is_the_callers_affair(cluster: Cluster, stub: Any) -> None:
    bad = as_json({"error": {"message": f"Incorrect API key {KEY}"}}, 401)
    token = {"message": "The security token included in the request is invalid."}
    async with serving(bad) as openai, serving(refusal(403, "UnrecognizedClientException", token)) as bedrock:
        model = await cluster.register(openai_connector(openai.url))
        _, code, details = await read(stub.PredictModelStream(asked(model, messages=HELLO, x_llm_interface=OPENAI)))
        assert code is Code.UNAUTHENTICATED
        assert details.startswith("Error from remote service: ")
        assert KEY not in details
        model = await cluster.register(bedrock_connector(bedrock.url))
        _, code, _ = await read(stub.PredictModelStream(asked(model, inputs="hi", x_llm_interface=BEDROCK)))
        assert code is Code.PERMISSION_DENIED


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, Code.INVALID_ARGUMENT),
        (404, Code.NOT_FOUND),
        (429, Code.RESOURCE_EXHAUSTED),
        (500, Code.INTERNAL),
        (503, Code.UNAVAILABLE),
    ],
)
async def test_a_remote_status_has_its_code(cluster: Cluster, stub: Any, status: int, code: grpc.StatusCode) -> None:
    async with serving(as_json({"error": {"message": "no"}}, status)) as remote:
        model = await cluster.register(openai_connector(remote.url))
        _, got, _ = await read(stub.PredictModelStream(asked(model, messages=HELLO, x_llm_interface=OPENAI)))
        assert got is code


async def test_case_30_non_remote_models_and_wrong_interfaces(cluster: Cluster, stub: Any) -> None:
    words = "Streaming is only supported for remote models"
    answer = await read(stub.PredictModelStream(asked("voice", inputs="hi")))
    assert answer == ([], Code.INVALID_ARGUMENT, words)
    async with serving(streamed(*chat("Hi"))) as remote:
        model = await cluster.register(openai_connector(remote.url))
        call = stub.PredictModelStream(asked(model, messages=HELLO, x_llm_interface=BEDROCK))
        _, code, details = await read(call)
        assert code is Code.INTERNAL
        assert details.startswith("Fail to execute streaming")
        assert remote.requests == []


async def test_case_30_the_template_may_name_stream(cluster: Cluster, stub: Any) -> None:
    template = '{"messages": ${parameters.messages}, "flag": "${parameters.stream}"}'
    async with serving(streamed(*chat("Hi"))) as remote:
        model = await cluster.register(openai_connector(remote.url, action={"request_body": template}))
        await read(stub.PredictModelStream(asked(model, messages=HELLO, x_llm_interface=OPENAI)))
        assert b'"flag":"true"' in remote.requests[0].body


async def test_case_31_and_36_a_truncated_answer_is_internal_after_its_messages(cluster: Cluster, stub: Any) -> None:
    async with serving(streamed(chunk({"content": "a"}), chunk({"content": "b"}))) as remote:
        model = await cluster.register(openai_connector(remote.url))
        call = stub.PredictModelStream(asked(model, messages=HELLO, x_llm_interface=OPENAI))
        messages, code, _ = await read(call)
        assert [content(message) for message in messages] == ["a", "b"]
        assert code is Code.INTERNAL


async def test_a_fault_of_ours_says_nothing_of_its_cause(stub: Any) -> None:
    messages, code, details = await read(stub.PredictModelStream(asked("faults", inputs="hi")))
    assert (len(messages), code) == (1, Code.INTERNAL)
    assert "secret-detail-of-a-bug" not in details


async def test_case_32_what_is_not_offered_is_unimplemented(ml_service: Service, stub: Any) -> None:
    agent = common_pb2.MlExecuteAgentStreamRequest(agent_id="a")
    _, code, details = await read(stub.ExecuteAgentStream(agent))
    assert code is Code.UNIMPLEMENTED
    assert "PredictModelStream" in details
    async with grpc.aio.insecure_channel(f"127.0.0.1:{ml_service.grpc_port}") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.unary_unary(f"/{SERVICE}/PredictModel")(b"")
        assert refused.value.code() is Code.UNIMPLEMENTED


@pytest.mark.parametrize("after_a_message", [True, False])
async def test_case_39_a_cancel_closes_the_remote_stream(cluster: Cluster, stub: Any, after_a_message: bool) -> None:
    async with serving(streamed(*(chat("a")[:2] if after_a_message else ()), asyncio.Event())) as remote:
        model = await cluster.register(openai_connector(remote.url))
        call = stub.PredictModelStream(asked(model, messages=HELLO, x_llm_interface=OPENAI))
        first = asyncio.ensure_future(anext(aiter(call)))
        await remote.until(lambda: bool(remote.requests))
        if after_a_message:
            await first
        call.cancel()
        async with asyncio.timeout(1):
            await remote.requests[0].gone.wait()
        await asyncio.wait([first])
        assert await call.code() is Code.CANCELLED


async def test_a_deadline_ends_the_call_and_the_remote_stream(cluster: Cluster, stub: Any) -> None:
    async with serving(streamed(asyncio.Event())) as remote:
        model = await cluster.register(openai_connector(remote.url))
        request = asked(model, messages=HELLO, x_llm_interface=OPENAI)
        _, code, _ = await read(stub.PredictModelStream(request, timeout=0.5))
        assert code is Code.DEADLINE_EXCEEDED
        async with asyncio.timeout(1):
            await remote.requests[0].gone.wait()


async def test_a_client_that_reads_nothing_is_let_go(cluster: Cluster, stub: Any) -> None:
    async with serving(streamed(*[chunk({"content": "x" * 100_000})] * 300, asyncio.Event())) as remote:
        model = await cluster.register(openai_connector(remote.url))
        call = stub.PredictModelStream(asked(model, messages=HELLO, x_llm_interface=OPENAI))
        await anext(aiter(call))
        async with asyncio.timeout(6):
            await remote.requests[0].gone.wait()
        # Its status stands behind what the client has not read.
        call.cancel()


async def test_a_long_error_text_is_cut_so_that_it_arrives(cluster: Cluster, stub: Any) -> None:
    async with serving(as_json({"error": {"message": "긴 오류 " * 8000}}, 400)) as remote:
        model = await cluster.register(openai_connector(remote.url))
        _, code, details = await read(stub.PredictModelStream(asked(model, messages=HELLO, x_llm_interface=OPENAI)))
        assert code is Code.INVALID_ARGUMENT
        assert details.startswith("Error from remote service: ")


async def test_health_and_reflection(ml_service: Service) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{ml_service.grpc_port}") as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", SERVICE):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
    with grpc.insecure_channel(f"127.0.0.1:{ml_service.grpc_port}") as blocking:
        database = ProtoReflectionDescriptorDatabase(blocking)
        services = await asyncio.to_thread(database.get_services)
        assert SERVICE in services
        file = await asyncio.to_thread(database.FindFileContainingSymbol, SERVICE)
        assert [method.name for method in file.service[0].method] == ["PredictModelStream", "ExecuteAgentStream"]


async def test_a_message_that_is_too_long_is_refused(stub: Any) -> None:
    request = asked("echo", inputs="x" * (11 * 1024 * 1024))
    _, code, _ = await read(stub.PredictModelStream(request))
    assert code is Code.RESOURCE_EXHAUSTED
