"""One request of every kind, with what its log line must say."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import grpc
import httpx
import websockets
from opensearch.protobufs.services.ml_service_pb2_grpc import MLServiceStub

from tests.opensearch.calls import asked, read
from tests.running import Service
from tests.shutdown.clients import MESSAGES, POSTS, Post, sent

Send = Callable[[Service, httpx.AsyncClient, str], Coroutine[Any, Any, str | None]]
"""Sends the request with an id; gives the id that the answer carries."""


@dataclass(frozen=True)
class Asked:
    """A request and its line: `line` is a part of it."""

    name: str
    send: Send
    line: dict[str, Any]
    others: dict[str, Any] = field(default_factory=dict)


def every_request() -> list[Asked]:
    """Streams that finish, streams that fail, refusals and plain answers, on every wire."""
    asked_for: list[Asked] = []
    for name, post in POSTS.items():
        wire = WIRES[name]
        asked_for += [
            Asked(f"{name}: finished", posting(post, "hello"), {"wire": wire, "outcome": "finished", "model": "hello"}),
            Asked(
                f"{name}: failed midway",
                posting(post, "fails-midway"),
                {"wire": wire, "outcome": "failed", "code": "upstream_error"},
            ),
            Asked(f"{name}: truncated", posting(post, "truncated"), {"wire": wire, "outcome": "truncated"}),
            Asked(
                f"{name}: refused upstream",
                posting(post, "fails-first"),
                {"wire": wire, "outcome": "failed", "code": "rate_limited"},
            ),
            Asked(
                f"{name}: no such model", posting(post, "nothing"), {"wire": wire, "outcome": "failed", "code": CODE}
            ),
            Asked(f"{name}: no JSON", garbage(post), {"wire": wire, "outcome": "failed", "code": CODE}),
        ]
    plain = Post("/v1/chat/completions", {"messages": MESSAGES}, "")
    asked_for += [
        Asked("whole answer", posting(plain, "hello"), {"wire": "openai", "outcome": "finished", "model": "hello"}),
        Asked("models", getting("/v1/models"), {"wire": "openai", "outcome": "finished", "status": 200}),
        Asked("no route", getting("/v1/nothing/here"), {"wire": "openai", "status": 404, "code": CODE}),
        Asked("nobody's path", getting("/nothing"), {"status": 404, "code": CODE}),
        Asked("wrong method", getting("/generate"), {"wire": "generate", "code": "method_not_allowed"}),
        Asked("prediction", predicting("hello"), {"wire": "replicate", "outcome": "finished", "model": "test/hello"}),
        Asked("failed prediction", predicting("fails"), {"wire": "replicate", "outcome": "failed", "code": CODE}),
        Asked(
            "no prediction", getting("/v1/predictions/none"), {"wire": "replicate", "status": 404, "code": "not_found"}
        ),
        Asked("ml models", getting("/_plugins/_ml/models/none"), {"wire": "opensearch", "status": 404, "code": CODE}),
        Asked("socket turn", talking("hello"), {"wire": "ws", "outcome": "finished", "model": "hello"}),
        Asked("failed turn", talking("fails-midway"), {"wire": "ws", "outcome": "failed", "code": "upstream_error"}),
        Asked("silent socket", talking(None), {"wire": "ws", "outcome": "finished", "status": 101}),
        Asked("realtime turn", conversing("hello"), {"wire": "realtime", "outcome": "finished", "model": "hello"}),
        Asked("failed realtime turn", conversing("fails-midway"), {"wire": "realtime", "outcome": "failed"}),
        Asked("silent realtime session", conversing(None), {"wire": "openai", "outcome": "finished", "status": 101}),
        Asked("no such realtime model", conversing("nothing"), {"wire": "openai", "status": 101}),
        Asked("speech", speaking("voice"), {"wire": "openai", "outcome": "finished", "model": "voice"}),
        Asked("no such voice", speaking("nothing"), {"wire": "openai", "status": 404, "code": CODE}),
        Asked("call", calling("hello"), {"wire": "opensearch-grpc", "outcome": "finished", "model": "hello"}),
        Asked("failed call", calling("fails-midway"), {"wire": "opensearch-grpc", "outcome": "failed", "code": CODE}),
        Asked("refused call", calling("nothing"), {"wire": "opensearch-grpc", "outcome": "failed", "code": CODE}),
    ]
    return asked_for


CODE = ...
"""Some code, whichever."""
WIRES = {
    "generate": "generate",
    "generate, framed": "generate",
    "openai chat": "openai",
    "openai responses": "openai",
    "openai completions": "openai",
    "ml commons": "opensearch",
    "sagemaker": "sagemaker",
    "sagemaker runtime": "sagemaker_runtime",
    "lambda": "lambda",
}


def request_id(answer: httpx.Response) -> str | None:
    found: str | None = answer.headers.get("x-request-id")
    return found


def posting(post: Post, model: str) -> Send:
    async def send(service: Service, http: httpx.AsyncClient, id: str) -> str | None:
        request = sent(post, model)
        request["headers"] = {**request["headers"], "x-request-id": id}
        try:
            async with http.stream("POST", **request) as answer:
                seen = request_id(answer)
                await answer.aread()
        except httpx.RemoteProtocolError:
            pass
        return seen

    return send


def garbage(post: Post) -> Send:
    async def send(service: Service, http: httpx.AsyncClient, id: str) -> str | None:
        path = post.path.replace("MODEL", "hello")
        headers = {"x-request-id": id, "content-type": "application/json"}
        return request_id(await http.post(path, content=b"{no json", headers=headers))

    return send


def getting(path: str) -> Send:
    async def send(service: Service, http: httpx.AsyncClient, id: str) -> str | None:
        return request_id(await http.get(path, headers={"x-request-id": id}))

    return send


def predicting(name: str) -> Send:
    async def send(service: Service, http: httpx.AsyncClient, id: str) -> str | None:
        path = f"/v1/models/test/{name}/predictions"
        headers = {"x-request-id": id, "prefer": "wait=10"}
        return request_id(await http.post(path, json={"input": {"prompt": "hi"}}, headers=headers))

    return send


def talking(model: str | None) -> Send:
    async def send(service: Service, http: httpx.AsyncClient, id: str) -> str | None:
        url, headers = f"{service.ws_url}/ws", {"x-request-id": id}
        async with websockets.connect(url, additional_headers=headers) as socket:
            if model is not None:
                await socket.send(json.dumps({"type": "chat", "text": "hi", "model": model}))
                async with asyncio.timeout(10):
                    while json.loads(await socket.recv())["type"] not in ("finished", "error"):
                        pass
            assert socket.response is not None
            return socket.response.headers.get("x-request-id")

    return send


def conversing(model: str | None) -> Send:
    async def send(service: Service, http: httpx.AsyncClient, id: str) -> str | None:
        url = f"{service.ws_url}/v1/realtime?model={model or 'hello'}"
        socket = await websockets.connect(url, additional_headers={"x-request-id": id})
        with suppress(websockets.ConnectionClosed):
            if model is not None:
                session = {"type": "realtime", "output_modalities": ["text"]}
                await socket.send(json.dumps({"type": "session.update", "session": session}))
                item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
                await socket.send(json.dumps({"type": "conversation.item.create", "item": item}))
                await socket.send(json.dumps({"type": "response.create"}))
                async with asyncio.timeout(10):
                    while json.loads(await socket.recv())["type"] not in ("response.done", "error"):
                        pass
            await socket.close()
        assert socket.response is not None
        return socket.response.headers.get("x-request-id")

    return send


def speaking(voice: str) -> Send:
    async def send(service: Service, http: httpx.AsyncClient, id: str) -> str | None:
        body = {"model": voice, "input": "Hi.", "response_format": "pcm"}
        return request_id(await http.post("/v1/audio/speech", json=body, headers={"x-request-id": id}))

    return send


def calling(model: str) -> Send:
    async def send(service: Service, http: httpx.AsyncClient, id: str) -> str | None:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{service.grpc_port}") as channel:
            call = MLServiceStub(channel).PredictModelStream(
                asked(model, inputs="hi"), metadata=(("x-request-id", id),)
            )
            await read(call)
            first, last = dict(await call.initial_metadata()), dict(await call.trailing_metadata())
            assert first["x-request-id"] == last["x-request-id"]
            return str(first["x-request-id"])

    return send
