"""One client of each kind: it opens its stream, says when it has begun, and tells in one line how it ended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import grpc
import httpx
import websockets
from opensearch.protobufs.services.ml_service_pb2_grpc import MLServiceStub
from websockets.asyncio.client import ClientConnection

from tests.opensearch.calls import asked, content
from tests.running import Service

HUNG = "hangs-midway"
TEXT_SESSION = {"type": "realtime", "output_modalities": ["text"]}
MESSAGES = [{"role": "user", "content": "hi"}]


@dataclass
class Client:
    """`run` sets `begun` when its stream is at work and gives what the client saw at the end."""

    kind: str
    run: Callable[[Client], Coroutine[None, None, str]]
    sees: str
    """What every client of this kind must see."""
    begun: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True)
class Post:
    """A request that streams, and how its wire says that the stream broke."""

    path: str
    body: dict[str, Any]
    error: str
    headers: dict[str, str] = field(default_factory=dict)


POSTS = {
    "generate": Post("/generate", {"prompt": "hi"}, "broken body"),
    "generate, framed": Post(
        "/generate", {"prompt": "hi"}, "event: error, broken body", {"accept": "text/event-stream"}
    ),
    "openai chat": Post("/v1/chat/completions", {"messages": MESSAGES, "stream": True}, "error frame, end"),
    "openai responses": Post("/v1/responses", {"input": "hi", "stream": True}, "response.failed, end"),
    "openai completions": Post("/v1/completions", {"prompt": "hi", "stream": True}, "error frame, end"),
    "ml commons": Post(
        "/_plugins/_ml/models/MODEL/_predict/stream", {"parameters": {"inputs": "hi"}}, "error frame, end"
    ),
    "sagemaker": Post("/invocations", {"messages": MESSAGES, "stream": True}, "error frame, end"),
    "sagemaker runtime": Post(
        "/endpoints/MODEL/invocations-response-stream", {"messages": MESSAGES, "stream": True}, "exception frame, end"
    ),
    "lambda": Post("/lambda", {"messages": MESSAGES, "stream": True}, "error frame, end"),
}


def every_kind(service: Service, http: httpx.AsyncClient) -> list[Client]:
    """One client of each kind whose stream would go on for ever, then those whose streams end in time."""
    clients = [_posting(http, kind, post, HUNG, f"text, {post.error}") for kind, post in POSTS.items()]
    clients += [
        Client(
            "openai, upstream", lambda c: _stream(http, c, POSTS["openai chat"], "remote"), "text, error frame, end"
        ),
        Client("openai, not streamed", lambda c: _whole(http, c, HUNG), "503 shutting_down"),
        Client("openai, before the first word", lambda c: _before(http, c), "503 shutting_down"),
        Client("replicate", lambda c: _prediction(http, c), "text, error event, done, end; prediction failed"),
        Client("openai speech", lambda c: _speech(http, c), "audio, broken body"),
        Client("ws, chat", lambda c: _turn(service, c, HUNG), "text, error shutting_down, 1012"),
        Client("ws, idle", lambda c: _idle(service, c), "error shutting_down, 1012"),
        Client("ws, speech that is being written", lambda c: _fed(service, c), "audio, error shutting_down, 1012"),
        Client("realtime", lambda c: _realtime(service, c), "text, response.done failed, error shutting_down, 1012"),
        Client("grpc", lambda c: _grpc(service, c, HUNG), "text, UNAVAILABLE"),
        Client("openai, ends in time", lambda c: _stream(http, c, POSTS["openai chat"], "slow"), "text, [DONE], end"),
        Client("ws, ends in time", lambda c: _turn(service, c, "slow"), "text, finished, error shutting_down, 1012"),
        Client("grpc, ends in time", lambda c: _grpc(service, c, "slow"), "text, last message, OK"),
    ]
    return clients


def _posting(http: httpx.AsyncClient, kind: str, post: Post, model: str, sees: str) -> Client:
    return Client(kind, lambda client: _stream(http, client, post, model), sees)


def sent(post: Post, model: str) -> dict[str, Any]:
    """The request of `post` for `model`, as httpx takes it."""
    return {"url": post.path.replace("MODEL", model), "json": {"model": model, **post.body}, "headers": post.headers}


async def _stream(http: httpx.AsyncClient, client: Client, post: Post, model: str) -> str:
    received, end = b"", "end"
    try:
        async with http.stream("POST", **sent(post, model)) as answer:
            async for piece in answer.aiter_raw():
                received += piece
                client.begun.set()
    except httpx.RemoteProtocolError:
        end = "broken body"
    text = received.decode("utf-8", "replace")
    words = ["text" if "Hello" in text or "One" in text else "no text"]
    words += [word for mark, word in MARKS if mark in text]
    return ", ".join([*words, end])


MARKS = (
    ("event: error", "event: error"),
    ('\n\ndata: {"error"', "error frame"),
    ('data:{"error"', "error frame"),
    ("ModelStreamError", "exception frame"),
    ("event: response.failed", "response.failed"),
    ("[DONE]", "[DONE]"),
)


async def _whole(http: httpx.AsyncClient, client: Client, model: str) -> str:
    client.begun.set()
    answer = await http.post("/v1/chat/completions", json={"model": model, "messages": MESSAGES})
    return f"{answer.status_code} {answer.json()['error']['code']}"


async def _before(http: httpx.AsyncClient, client: Client) -> str:
    client.begun.set()
    answer = await http.post("/v1/chat/completions", json={"model": "silent", "messages": MESSAGES, "stream": True})
    return f"{answer.status_code} {answer.json()['error']['code']}"


async def _speech(http: httpx.AsyncClient, client: Client) -> str:
    seen = ""
    body = {"model": "voice-hangs", "input": "hi", "response_format": "pcm"}
    try:
        async with http.stream("POST", "/v1/audio/speech", json=body) as answer:
            async for _ in answer.aiter_raw():
                seen = "audio, "
                client.begun.set()
    except httpx.RemoteProtocolError:
        return f"{seen}broken body"
    return f"{seen}end"


async def _prediction(http: httpx.AsyncClient, client: Client) -> str:
    created = (await http.post("/v1/models/test/hangs/predictions", json={"input": {"prompt": "hi"}})).json()
    text = ""
    async with http.stream("GET", created["urls"]["stream"], headers={"accept": "text/event-stream"}) as answer:
        async for piece in answer.aiter_text():
            text += piece
            if "Hello" in text:
                client.begun.set()
    words = ["text" if "Hello" in text else "no text"]
    words += [word for mark, word in (("event: error", "error event"), ("event: done", "done")) if mark in text]
    # The state outlives this service; the reader above was told all of it.
    status = "failed" if "was stopped while this prediction ran" in text or "was shut down" in text else "unknown"
    return ", ".join([*words, "end"]) + f"; prediction {status}"


async def _turn(service: Service, client: Client, model: str) -> str:
    async with websockets.connect(f"{service.ws_url}/ws") as socket:
        await socket.send(json.dumps({"type": "chat", "text": "hi", "model": model}))
        return await _seen(socket, client, "text")


async def _idle(service: Service, client: Client) -> str:
    async with websockets.connect(f"{service.ws_url}/ws") as socket:
        client.begun.set()
        return await _seen(socket, client, "")


async def _fed(service: Service, client: Client) -> str:
    async with websockets.connect(f"{service.ws_url}/ws") as socket:
        await socket.send(json.dumps({"type": "speak.append", "id": "a", "text": "no sentence yet"}))
        await socket.send(json.dumps({"type": "ping"}))
        return await _seen(socket, client, "pong")


async def _realtime(service: Service, client: Client) -> str:
    words: list[str] = []
    async with websockets.connect(f"{service.ws_url}/v1/realtime?model={HUNG}") as socket:
        await socket.send(json.dumps({"type": "session.update", "session": TEXT_SESSION}))
        item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
        await socket.send(json.dumps({"type": "conversation.item.create", "item": item}))
        await socket.send(json.dumps({"type": "response.create"}))
        while (message := await _next(socket)) is not None:
            event = json.loads(message)
            if event["type"] == "response.output_text.delta":
                client.begun.set()
                words.append("text")
            elif event["type"] == "response.done":
                words.append(f"response.done {event['response']['status']}")
            elif event["type"] == "error":
                words.append(f"error {event['error']['code']}")
    return ", ".join([*words, str(socket.close_code)])


async def _next(socket: ClientConnection) -> str | bytes | None:
    try:
        return await socket.recv()
    except websockets.ConnectionClosed:
        return None


async def _seen(socket: ClientConnection, client: Client, begins: str) -> str:
    words: list[str] = []
    while (message := await _next(socket)) is not None:
        kind = json.loads(message)["type"] if isinstance(message, str) else "audio"
        if kind == "error":
            kind += f" {json.loads(message)['code']}"
        if kind not in words and kind not in ("started", "pong"):
            words.append(kind)
        if kind == begins:
            client.begun.set()
    return ", ".join([*words, str(socket.close_code)])


async def _grpc(service: Service, client: Client, model: str) -> str:
    words: list[str] = []
    async with grpc.aio.insecure_channel(f"127.0.0.1:{service.grpc_port}") as channel:
        call = MLServiceStub(channel).PredictModelStream(asked(model, inputs="hi"))
        try:
            async for message in call:
                client.begun.set()
                words.append("text" if content(message) else "last message")
        except grpc.aio.AioRpcError:
            pass
        words.append((await call.code()).name)
    return ", ".join(dict.fromkeys(words))
