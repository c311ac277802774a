"""A stand-in for api.replicate.com: create, read, cancel, stream, schema. Its bytes follow the documentation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.upstreams.byte_server import Answer, ByteServer, Request, json_answer

ID = "gm3qorzdhgbfurvjtvhg6dckhu"
EVENT_STREAM = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-store"}


def output(number: int, text: str) -> bytes:
    """One `output` event: a `data:` line per line of text."""
    lines = "".join(f"data: {line}\n" for line in text.split("\n"))
    return f"event: output\nid: 1795984714:{number}\n{lines}\n".encode()


DONE = b"event: done\nid: 1795984714:900\ndata: {}\n\n"
CANCELED = b'event: done\ndata: {"reason": "canceled"}\n\n'
FAILED = b'event: error\ndata: {"detail": "Something went wrong"}\n\nevent: done\ndata: {"reason": "error"}\n\n'


@dataclass
class ReplicateFake:
    """Each connection to the stream takes the next of `streams`, the last one again and again."""

    streams: list[Answer] = field(default_factory=list)
    create: Answer | None = None
    schema: dict[str, Any] | None = None
    prediction: dict[str, Any] = field(default_factory=lambda: {"status": "processing", "output": None})
    stream_url: str | None = "{base}/v1/streams/3kq9"
    cancel: Callable[[], Answer] = lambda: json_answer({"id": ID, "status": "canceled"})
    polls: list[dict[str, Any]] = field(default_factory=list)
    server: ByteServer = field(init=False)

    @property
    def cancels(self) -> list[Request]:
        return self.server.received("POST", "/cancel")

    @property
    def created(self) -> Request:
        return self.server.received("POST", "/predictions")[0]

    def answer(self, request: Request) -> Answer:
        if request.path.endswith("/cancel"):
            return self.cancel()
        if request.method == "POST":
            return self.create or json_answer(self._object("starting"), 201)
        if "/streams/" in request.path:
            return self.streams.pop(0) if len(self.streams) > 1 else self.streams[0]
        if "/models/" in request.path:
            return self._schema(request)
        if self.polls:
            self.prediction = self.polls.pop(0)
        return json_answer({**self._object("processing"), **self.prediction})

    def _object(self, status: str) -> dict[str, Any]:
        base = self.server.url
        urls = {"get": f"{base}/v1/predictions/{ID}", "cancel": f"{base}/v1/predictions/{ID}/cancel"}
        if self.stream_url is not None:
            urls["stream"] = self.stream_url.format(base=base)
        return {
            "id": ID, "model": "meta/llama", "version": "hidden", "status": status,
            "output": None, "error": None, "metrics": {}, "urls": urls,
        }  # fmt: skip

    def _schema(self, request: Request) -> Answer:
        if self.schema is None:
            return json_answer({"title": "Not found", "detail": "not found", "status": 404}, 404)
        version = {"id": "f" * 64, "openapi_schema": {"components": {"schemas": {"Input": self.schema}}}}
        return json_answer(version if "/versions/" in request.path else {"latest_version": version})


@asynccontextmanager
async def replicate_fake(*streams: Answer, **fields: Any) -> AsyncIterator[ReplicateFake]:
    """The fake, serving on a free loopback port."""
    fake = ReplicateFake(list(streams), **fields)
    async with ByteServer({"*": fake.answer}) as fake.server:
        yield fake


def event_stream(*pieces: Any, **fields: Any) -> Answer:
    """The answer of a stream's URL."""
    return Answer(pieces, headers=EVENT_STREAM, **fields)
