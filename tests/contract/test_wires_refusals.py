"""Unknown routes, methods and models, and broken bodies, are answered in the shape of the wire that was asked."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.contract.wire_clients import Clients, Raw, clients
from tests.running import Service

Shape = Callable[[Any, Raw], bool]


def bento(body: Any, raw: Raw) -> bool:
    return set(body) == {"error", "code", "retryable"} and isinstance(body["error"], str)


def openai(body: Any, raw: Raw) -> bool:
    return set(body) == {"error"} and set(body["error"]) == {"message", "type", "param", "code"}


def replicate(body: Any, raw: Raw) -> bool:
    return {"title", "detail", "status"} <= set(body) and body["status"] == raw.status


def opensearch(body: Any, raw: Raw) -> bool:
    """OpenSearch's error object, or its router's one sentence."""
    error = body["error"]
    if isinstance(error, str):
        return set(body) <= {"error", "status"}
    return body["status"] == raw.status and {"type", "reason", "root_cause"} <= set(error)


def container(body: Any, raw: Raw) -> bool:
    return set(body) == {"error", "error_type"}


def runtime(body: Any, raw: Raw) -> bool:
    return "Message" in body


def function(body: Any, raw: Raw) -> bool:
    return set(body) == {"message", "type"}


def socket(body: Any, raw: Raw) -> bool:
    return bool(body["type"] == "error" and body["status"] == raw.status)


@dataclass(frozen=True, slots=True)
class Asked:
    """One wire: a route of its own that takes a body, a path below its prefix that is nobody's, and its error shape.

    `body` names the model `{model}`; `wrong_input` is the status of a body that cannot be taken, `no_route` that of a
    path that is nobody's.
    """

    shape: Shape
    route: str
    nowhere: str | None
    body: dict[str, Any]
    wrong_input: int = 400
    no_route: int = 404
    no_method: int = 405


HI = [{"role": "user", "content": "hi"}]
WIRES = {
    "generate": Asked(bento, "/generate", "/generate/nowhere", {"prompt": "hi", "model": "{model}"}),
    "openai chat": Asked(openai, "/v1/chat/completions", "/v1/nowhere", {"model": "{model}", "messages": HI}),
    "openai completions": Asked(openai, "/v1/completions", "/v1/completions/x", {"model": "{model}", "prompt": "hi"}),
    "openai responses": Asked(openai, "/v1/responses", "/v1/responses/a/b/c", {"model": "{model}", "input": "hi"}),
    "openai speech": Asked(
        openai, "/v1/audio/speech", "/v1/audio/x", {"model": "{model}", "voice": "alloy", "input": "hi"}
    ),
    "replicate by version": Asked(
        replicate, "/v1/predictions", "/v1/predictions/a/b", {"version": "{model}", "input": {"prompt": "hi"}}
    ),
    "replicate by model": Asked(
        replicate, "/v1/models/nobody/{model}/predictions", "/v1/models/a/b/c", {"input": {"prompt": "hi"}}
    ),
    "replicate by deployment": Asked(
        replicate, "/v1/deployments/nobody/{model}/predictions", "/v1/deployments/a", {"input": {"prompt": "hi"}}
    ),
    "ml commons": Asked(
        opensearch,
        "/_plugins/_ml/models/{model}/_predict",
        "/_plugins/x",
        {"parameters": {"prompt": "hi"}},
        no_route=400,
    ),
    "ml commons stream": Asked(
        opensearch,
        "/_plugins/_ml/models/{model}/_predict/stream",
        "/_plugins/_ml/x",
        {"parameters": {"prompt": "hi"}},
        no_route=400,
    ),
    "sagemaker container": Asked(
        container, "/invocations", "/invocations/nowhere", {"model": "{model}", "inputs": "hi"}, wrong_input=422
    ),
    "sagemaker runtime": Asked(runtime, "/endpoints/{model}/invocations", "/endpoints/x", {"inputs": "hi"}),
    "sagemaker runtime stream": Asked(
        runtime, "/endpoints/{model}/invocations-response-stream", "/endpoints/x/y", {"inputs": "hi", "stream": True}
    ),
    "lambda": Asked(function, "/lambda", "/lambda/nowhere", {"model": "{model}", "inputs": "hi"}),
    "websocket": Asked(socket, "/ws", None, {}, no_method=404),
}
every = pytest.mark.parametrize("asked", WIRES.values(), ids=WIRES)
BY_BODY = pytest.mark.parametrize(
    "asked", [asked for asked in WIRES.values() if asked.body], ids=[name for name in WIRES if WIRES[name].body]
)
BROKEN = {
    "no JSON": b"{",
    "a list": b"[]",
    "a number": b"7",
    "null": b"null",
    "nothing": b"",
    "no UTF-8": b'{"prompt": "\xff\xfe"}',
    "nested too deeply": b'{"a":' * 100_000,
    "an empty object": b"{}",
}


@pytest.fixture
async def asking(service: Service) -> AsyncIterator[Clients]:
    async with clients(service) as opened:
        yield opened


def check(asked: Asked, raw: Raw, status: int) -> None:
    assert raw.status == status, raw.body
    assert asked.shape(json.loads(raw.body), raw), raw.body


def filled(asked: Asked, model: str) -> tuple[str, bytes]:
    return asked.route.replace("{model}", model), json.dumps(asked.body).replace("{model}", model).encode()


@BY_BODY
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
async def test_an_unknown_route(asking: Clients, asked: Asked, method: str) -> None:
    assert asked.nowhere is not None
    check(asked, await asking.send(method, asked.nowhere), asked.no_route)


@every
@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH"])
async def test_a_wrong_method(asking: Clients, asked: Asked, method: str) -> None:
    path, _ = filled(asked, "hello")
    check(asked, await asking.send(method, path), asked.no_method)


@BY_BODY
async def test_an_unknown_model(asking: Clients, asked: Asked) -> None:
    path, body = filled(asked, "nobody-knows")
    check(asked, await asking.post(path, body), 404)


@BY_BODY
@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
async def test_a_broken_body(asking: Clients, asked: Asked, broken: bytes) -> None:
    path, _ = filled(asked, "hello")
    raw = await asking.post(path, broken)
    status = raw.status if asked.shape is replicate and raw.status == 422 else asked.wrong_input
    check(asked, raw, status)


FORM = b'--x\r\ncontent-disposition: form-data; name="prompt"\r\n\r\nhi\r\n--x--\r\n'


@BY_BODY
@pytest.mark.parametrize("kind", ["multipart/form-data", "multipart/form-data; boundary=x", "image/png", "nonsense"])
async def test_a_body_of_another_kind(asking: Clients, asked: Asked, kind: str) -> None:
    path, _ = filled(asked, "hello")
    raw = await asking.post(path, FORM, {"content-type": kind})
    assert 400 <= raw.status < 500
    check(asked, raw, raw.status)
