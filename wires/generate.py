"""The BentoML wire: `POST /generate`, a generator API whose body is the raw text, one piece per delta.

A refusal before the first piece has its true status; a failure midway breaks the body, so that no client can take it
for the end. With `Accept: text/event-stream` the same pieces come as server-sent events, closed by `event: done`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Literal

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, Response

from gateway.catalog import Gateway
from gateway.errors import GatewayError, InvalidRequest
from gateway.events import Failed, Finished, StreamEvent, TextDelta
from gateway.request import ChatRequest, Message, Role, Sampling, text_message
from gateway.sse import LineFeeds, encode_sse
from gateway.telemetry import current_request
from wires.base import StreamResponse, Wire, gateway_of, retry_headers

EVENT_STREAM = "text/event-stream"


class ChatMessage(BaseModel):
    """One earlier message of the conversation."""

    content: str
    role: Literal["assistant", "user", "system"]


class Refused(Exception):
    """Tells BentoML that the API failed; the true answer lies in the request's scope."""


def parse(
    prompt: str,
    *,
    model: str | None = None,
    system: str | None = None,
    messages: Sequence[ChatMessage] | None = None,
    max_tokens: int | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    stop: str | Sequence[str] | None = None,
) -> ChatRequest:
    """The request: `system`, then `messages`, then `prompt` as the last user message."""
    history: list[Message] = [text_message(Role.SYSTEM, system)] if system else []
    history += [text_message(Role(message.role), message.content) for message in messages or ()]
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    sampling = Sampling(max_tokens=max_tokens, temperature=temperature, top_p=top_p, stop=stops)
    return ChatRequest(model=model or "", messages=(*history, text_message(Role.USER, prompt)), sampling=sampling)


async def respond(request: Request, body: BaseModel) -> Response:
    """Answer a body with the fields of `parse`, past BentoML's generators: each piece would climb through them."""
    chat, gateway, framed = parse(**dict(body)), gateway_of(request), asks_for_events(request)
    return StreamResponse(
        WIRE,
        lambda: gateway.chat(chat, wire=WIRE.name),
        PieceEncoder(framed=framed),
        limits=gateway.settings.limits,
        media_type=media_type(framed=framed),
    )


def asks_for_events(request: HTTPConnection) -> bool:
    """Whether the client wants its pieces as server-sent events."""
    return EVENT_STREAM in request.headers.get("accept", "")


def media_type(*, framed: bool) -> str:
    """The answer's content type."""
    return f"{EVENT_STREAM if framed else 'text/plain'}; charset=utf-8"


async def pieces(gateway: Gateway, request: ChatRequest, *, framed: bool) -> AsyncGenerator[str, None]:
    """The text of the answer, piece by piece; as server-sent events if `framed`.

    Raises Refused before the first piece. Midway it raises CancelledError: the only way to make BentoML break the
    body instead of ending it cleanly.
    """
    begun = False
    encoder = PieceEncoder(framed=framed)
    try:
        async with gateway.chat(request, wire=WIRE.name) as events:
            async for event in events:
                for piece in encoder.encode(event):
                    begun = True
                    yield piece.decode()
    except GatewayError as failure:
        if begun:
            raise asyncio.CancelledError("the answer broke off") from failure
        _refuse(failure)
        raise Refused(failure.code) from failure


class PieceEncoder:
    """Events to pieces of the body, as server-sent events if `framed`; raises the error of a failure."""

    def __init__(self, *, framed: bool) -> None:
        self._framed = framed
        self._lines = LineFeeds()

    def encode(self, event: StreamEvent) -> Iterator[bytes]:
        match event:
            case TextDelta(text=text) if self._framed:
                if piece := self._lines.feed(text):
                    yield encode_sse(piece)
            case TextDelta(text=text):
                yield text.encode("utf-8", "replace")
            case Finished() if self._framed:
                yield encode_sse("{}", event="done")
            case Failed(error=failure):
                if self._framed:
                    yield encode_sse(json.dumps(error_body(failure)), event="error")
                raise failure
            case _:
                pass


def error_body(error: GatewayError) -> dict[str, object]:
    """This wire's error object; `error` is a sentence, as in BentoML's own errors."""
    return {"error": error.message, "code": error.code, "retryable": error.retryable}


def error_response(error: GatewayError) -> Response:
    """An error before the first piece."""
    return JSONResponse(error_body(error), status_code=error.status, headers=retry_headers(error))


def _refuse(error: GatewayError) -> None:
    """Have the middleware send the true answer in place of BentoML's, which has neither status nor reason."""
    scope = current_request.get()
    if scope is not None:
        scope.refusal = WIRE.refuse(error)


class _Quiet(logging.Filter):
    """Drops BentoML's tracebacks of what was answered already: they quote the caller's text."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, Refused | ValidationError)


logging.getLogger("bentoml._internal.server.http_app").addFilter(_Quiet())


def unfit(body: bytes) -> GatewayError | None:
    """The first problem of a request that BentoML refused: its own answer only counts them, and quotes the caller."""
    try:
        problem = json.loads(body)["detail"][0]
        place, message = ".".join(str(part) for part in problem["loc"]), problem["msg"]
    except (ValueError, LookupError, TypeError):
        return None
    return InvalidRequest(f"{place or 'The request body'}: {message}.", param=place or None)


WIRE = Wire("generate", re.compile(r"/generate(/.*)?"), error_response, unfit, json_only=True)
