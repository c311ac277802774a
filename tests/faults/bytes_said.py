"""What the crowds say, as bytes: requests, WebSocket frames, and too much of both on every path that reads JSON."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator

PING = b"\x89\xfd\x00\x00\x00\x00" + b"p" * 125
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
COMPRESSED = 0xC1
"""A whole text message, said to be compressed."""
BOMB = zlib.compress(bytes(50_000_000), 9, -15)
FIELDS = ("prompt", "messages", "input", "inputs", "parameters", "query", "text", "session", "a")


def head(path: str, length: int) -> bytes:
    """A request up to its body."""
    start = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\nconnection: close\r\n"
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


def asks(kind: str) -> Iterator[tuple[bytes, bytes]]:
    """What is said first and what after a handshake, for every kind of too much."""
    match kind:
        case "JSON of 10,000 levels":
            for body in _deep_bodies():
                yield from _everywhere(body)
        case "lines of 10 MB":
            yield from _everywhere(_long_body())
        case "deflate bombs":
            offer = "sec-websocket-extensions: permessage-deflate\r\n"
            for path in SOCKET_PATHS:
                yield handshake(path, offer), frame(BOMB, COMPRESSED)
        case _:
            for model in ("line", "deep", "bomb"):
                chat = {"model": model, "stream": True, "messages": [{"role": "user", "content": "hi"}]}
                yield post("/v1/chat/completions", json.dumps(chat).encode()), b""


def _everywhere(body: bytes) -> Iterator[tuple[bytes, bytes]]:
    yield from ((post(path, body), b"") for path in JSON_PATHS)
    yield from ((handshake(path), frame(body)) for path in SOCKET_PATHS)


def _deep_bodies() -> Iterator[bytes]:
    """JSON of 10,000 levels: bare, unfinished, and in each field that a wire reads."""
    arrays, objects = b"[" * DEPTH + b"]" * DEPTH, b'{"a":' * DEPTH + b"1" + b"}" * DEPTH
    yield from (arrays, objects, b"[" * DEPTH, b'{"a":' * DEPTH)
    for nested in (arrays, objects):
        fields = b", ".join(b'"%s": %s' % (field.encode(), nested) for field in FIELDS)
        yield b'{"type": "chat", "model": "default", %s}' % fields


def _long_body() -> bytes:
    """One line of 10 MB in every field that a wire reads."""
    text = b"z" * (LINE_BYTES // len(FIELDS))
    fields = b", ".join(b'"%s": "%s"' % (field.encode(), text) for field in FIELDS)
    return b'{"type": "chat", "model": "default", %s}' % fields
