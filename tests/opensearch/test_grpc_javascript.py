"""gRPC for JavaScript, an implementation of its own: the documentation's calls as the Java client makes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from opensearch.protobufs.services import ml_service_pb2

from tests.javascript import install, run_node
from tests.running import Service

MESSAGES = {
    "messages": [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "Can you summarize Prince Hamlet of William Shakespeare in around 100 words?"},
    ],
    "x_llm_interface": "openai/v1/chat/completions",
}
INPUTS = {"inputs": "Can you summarize Prince Hamlet?", "x_llm_interface": "bedrock/converse/claude"}


@pytest.fixture(scope="module")
def descriptors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The public protobufs of the service as one set."""
    install()
    found: dict[str, FileDescriptorProto] = {}

    def collect(file: Any) -> None:
        if file.name not in found:
            for needed in file.dependencies:
                collect(needed)
            found[file.name] = FileDescriptorProto()
            file.CopyToProto(found[file.name])

    collect(ml_service_pb2.DESCRIPTOR)
    path = tmp_path_factory.mktemp("grpc") / "ml_service.bin"
    path.write_bytes(FileDescriptorSet(file=found.values()).SerializeToString())
    return path


def called(service: Service, descriptors: Path, model: str, parameters: Any) -> Any:
    return run_node("grpc.mjs", f"localhost:{service.grpc_port}", str(descriptors), model, json.dumps(parameters))


@pytest.mark.parametrize("parameters", [MESSAGES, INPUTS], ids=["messages", "inputs"])
def test_the_documented_calls_stream(service: Service, descriptors: Path, parameters: Any) -> None:
    seen = called(service, descriptors, "hello", parameters)
    assert seen["contents"] == ["Hello", " 안녕하세요", " 👋🏽", ""]
    assert seen["last"] == [False, False, False, True]
    assert seen["status"] == "OK"


@pytest.mark.parametrize(
    ("model", "contents", "status"),
    [("fails-first", [], "RESOURCE_EXHAUSTED"), ("fails-midway", ["Hello"], "INTERNAL"), ("nobody", [], "NOT_FOUND")],
)
def test_errors_are_statuses_with_a_message(
    service: Service, descriptors: Path, model: str, contents: list[str], status: str
) -> None:
    seen = called(service, descriptors, model, MESSAGES)
    assert (seen["contents"], seen["status"]) == (contents, status)
    assert seen["details"]
