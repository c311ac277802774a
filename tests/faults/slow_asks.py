"""How each wire that streams is asked by a reader that is slow, as the bytes that it says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format
from opensearch.protobufs.schemas import common_pb2

from tests.faults.bytes_said import ML, frame, handshake, post


def asking(opening: bytes, then: bytes = b"") -> dict[str, str]:
    """As the crowds take it: what is said first, and what after the handshake."""
    return {"opening": opening.decode("latin-1"), "then": then.decode("latin-1")}


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
