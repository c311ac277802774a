"""What clients of these tests say, as bytes: requests, WebSocket frames, one gRPC call, and how each wire is asked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from google.protobuf import json_format
from opensearch.protobufs.schemas import common_pb2

PING = b"\x89\xfd\x00\x00\x00\x00" + b"p" * 125
PONG = b"\x8a\x80\x00\x00\x00\x00"
DEPTH = 10_000
LINE_BYTES = 10 * 1024 * 1024
ML = "/_plugins/_ml"
JSON_PATHS = (
    "/generate", "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/audio/speech",
    "/v1/realtime/client_secrets", "/v1/predictions", "/v1/models/test/flood-16000/predictions",
    "/v1/deployments/test/flood-16000/predictions", "/invocations", "/lambda", "/endpoints/default/invocations",
    "/endpoints/default/invocations-response-stream", f"{ML}/connectors/_create", f"{ML}/connectors/_search",
    f"{ML}/models/_register", f"{ML}/models/_search", f"{ML}/models/default/_predict",
    f"{ML}/models/default/_predict/stream",
)  # fmt: skip
"""Every path that reads a JSON body, or one of its kind."""
SOCKET_PATHS = ("/ws", "/invocations-bidirectional-stream", "/v1/realtime?model=default")
FIELDS = ("prompt", "messages", "input", "inputs", "parameters", "query", "text", "session", "a")


def head(path: str, length: int) -> bytes:
    """A request up to its body."""
    start = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    return f"{start}content-length: {length}\r\n\r\n".encode()


def post(path: str, body: bytes) -> bytes:
    """A whole request."""
    return head(path, len(body)) + body


def handshake(path: str, extra: str = "") -> bytes:
    """A WebSocket's opening."""
    return (
        f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
        f"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n{extra}\r\n"
    ).encode()


def frame(payload: bytes, first: int = 0x81) -> bytes:
    """A client's frame, a whole text message by default; its mask is of zeros."""
    return bytes([first, 0xFF]) + len(payload).to_bytes(8, "big") + bytes(4) + payload


def asking(opening: bytes, then: bytes = b"") -> dict[str, str]:
    """As the crowds take it: what is said first, and what after the handshake."""
    return {"opening": opening.decode("latin-1"), "then": then.decode("latin-1")}


def with_body(body: bytes) -> list[dict[str, str]]:
    """`body` for every path and socket."""
    return [asking(post(path, body)) for path in JSON_PATHS] + [
        asking(handshake(path), frame(body)) for path in SOCKET_PATHS
    ]


def deep_bodies() -> Iterator[bytes]:
    """JSON of 10,000 levels: bare, unfinished, and in each field that a wire reads."""
    arrays, objects = b"[" * DEPTH + b"]" * DEPTH, b'{"a":' * DEPTH + b"1" + b"}" * DEPTH
    yield from (arrays, objects, b"[" * DEPTH, b'{"a":' * DEPTH)
    for nested in (arrays, objects):
        fields = b", ".join(b'"%s": %s' % (field.encode(), nested) for field in FIELDS)
        yield b'{"type": "chat", "model": "default", %s}' % fields


def long_body() -> bytes:
    """One line of 10 MB in every field that a wire reads."""
    text = b"z" * (LINE_BYTES // len(FIELDS))
    fields = b", ".join(b'"%s": "%s"' % (field.encode(), text) for field in FIELDS)
    return b'{"type": "chat", "model": "default", %s}' % fields


def slow_asks(model: str) -> Mapping[str, dict[str, str]]:
    """How every wire that streams is asked for all that `model` says; Replicate's stream has to be made first."""
    chat = [{"role": "user", "content": "hi"}]
    bodies: dict[str, tuple[str, dict[str, Any]]] = {
        "generate": ("/generate", {"prompt": "hi", "model": model}),
        "chat": ("/v1/chat/completions", {"model": model, "messages": chat, "stream": True}),
        "completions": ("/v1/completions", {"model": model, "prompt": "hi", "stream": True}),
        "responses": ("/v1/responses", {"model": model, "input": "hi", "stream": True, "store": False}),
        "speech": ("/v1/audio/speech", {"model": "voice", "voice": "voice", "input": "hi", "response_format": "pcm"}),
        "opensearch": (f"{ML}/models/{model}/_predict/stream", {"parameters": {"inputs": "hi"}}),
        "invocations": ("/invocations", {"model": model, "inputs": "hi", "stream": True}),
        "runtime": (f"/endpoints/{model}/invocations-response-stream", {"inputs": "hi", "stream": True}),
        "lambda": ("/lambda", {"model": model, "inputs": "hi", "stream": True}),
    }
    asks = {wire: asking(post(path, json.dumps(body).encode())) for wire, (path, body) in bodies.items()}
    turn = json.dumps({"type": "chat", "model": model, "messages": chat}).encode()
    for name, path in (("ws", "/ws"), ("bidirectional", "/invocations-bidirectional-stream")):
        asks[name] = asking(handshake(path), frame(turn))
    asks["ws speech"] = asking(handshake("/ws?format=pcm"), frame(b"Hello there."))
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    response = {"conversation": "none", "input": [item], "output_modalities": ["text"]}
    message = json.dumps({"type": "response.create", "response": response}).encode()
    asks["realtime"] = asking(handshake(f"/v1/realtime?model={model}"), frame(message))
    return asks


def grpc_call(model: str) -> bytes:
    """A call of PredictModelStream whose client allows everything to be sent, and never reads."""
    body = {"model_id": model, "ml_predict_model_stream_request_body": {"parameters": {"inputs": "hi"}}}
    message = json_format.ParseDict(body, common_pb2.MlPredictModelStreamRequest()).SerializeToString()
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/org.opensearch.protobufs.services.MLService/PredictModelStream",
        ":authority": "127.0.0.1",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    most = 2**31 - 1
    return b"".join(
        (
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            _http2(4, 0, 0, b"\x00\x04" + most.to_bytes(4, "big")),
            _http2(8, 0, 0, (most - 65_535).to_bytes(4, "big")),
            _http2(1, 4, 1, b"".join(_header(name, value) for name, value in headers.items())),
            _http2(0, 1, 1, b"\x00" + len(message).to_bytes(4, "big") + message),
        )
    )


def _http2(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _header(name: str, value: str) -> bytes:
    """Literal, never indexed; no value here is longer than 126 bytes."""
    return bytes([0x10, len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
