"""What a `ByteServer` plays: the steps of one answer, as bytes, pauses and acts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tests.upstreams.http_request import Request


class Act(Enum):
    """A step of an answer that is not bytes."""

    HANG = "say nothing until the peer goes away"
    DROP = "close the connection in the middle"
    RESET = "reset the connection"


Step = bytes | float | Act | asyncio.Event


class Framing(Enum):
    """How the body's end is told."""

    CHUNKED = "chunked"
    LENGTH = "length"
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: `steps` are bytes to write, seconds to pause, events to wait for and acts. `cut` splits every write
    into that many bytes; `truncated_at` drops the connection after so many bytes of the body (LENGTH still declares
    them all); not even the head is written before `after` is set; `before_head` is done in place of everything."""

    steps: Sequence[Step] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "text/event-stream"})
    framing: Framing = Framing.CHUNKED
    cut: int | None = None
    truncated_at: int | None = None
    before_head: Act | None = None
    after: asyncio.Event | None = None

    @property
    def body(self) -> bytes:
        """All bytes of the body, without framing."""
        return b"".join(step for step in self.steps if isinstance(step, bytes))


def json_answer(body: Any, status: int = 200, **headers: str) -> Answer:
    """A whole JSON answer with its length; `body` is a value, or bytes that are sent as they are."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    said = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Answer((said,), status, {"content-type": "application/json", **given}, Framing.LENGTH)


Route = Answer | Sequence[Answer] | Callable[[Request], Answer]
