"""An HTTP/1.1 request as the fake server received it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False, slots=True)
class Request:
    """What came in. `written` is set with the first bytes of our answer's body, `answered` with its end, `gone` when
    the peer closes its connection before that, `ended` with either; `gone_at` is the event loop's time."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    gone_at: float | None = None
    written: asyncio.Event = field(default_factory=asyncio.Event)
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def json(self) -> Any:
        """The body's JSON value."""
        return json.loads(self.body)


def parse_request(received: bytes) -> Request | None:
    """The request that `received` holds, None while it is not whole."""
    head, separator, rest = received.partition(b"\r\n\r\n")
    if not separator:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = _request_body(headers, rest)
    if body is None:
        return None
    method, path, _ = first.split(" ", 2)
    return Request(method, path, headers, body)


def _request_body(headers: Mapping[str, str], received: bytes) -> bytes | None:
    """The body, None while it is not whole."""
    if headers.get("transfer-encoding") == "chunked":
        return _unchunked(received)
    length = int(headers.get("content-length", 0))
    return received[:length] if len(received) >= length else None


def _unchunked(received: bytes) -> bytes | None:
    body = b""
    while True:
        size, separator, rest = received.partition(b"\r\n")
        if not separator:
            return None
        length = int(size, 16)
        if len(rest) < length + 2:
            return None
        if length == 0:
            return body
        body, received = body + rest[:length], rest[length + 2 :]
