"""How the OpenAI wire says an error: `{"error": {message, type, param, code}}`, before a stream and inside one."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from pydantic import BaseModel
from starlette.responses import Response

from gateway.errors import GatewayError
from wires.base import Wire, retry_headers
from wires.documents import EVENTS

CODES = {"unauthorized": "invalid_api_key", "missing_api_key": "invalid_api_key", "rate_limited": "rate_limit_exceeded"}
KEEPALIVE = b": ping\n"
"""One newline only: openai-python takes a blank line after a comment for an event."""
SHORTEST_RETRY = {"retry-after": "1", "retry-after-ms": "1000"}
"""A 429 always says when to come back, also when its provider did not."""


class ErrorObject(BaseModel):
    """What went wrong, in the words of OpenAI's clients."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """Every refusal of the `/v1` routes."""

    error: ErrorObject


class JsonBody(Response):
    """JSON in ASCII: a client that splits lines at U+2028 finds none, and a lone surrogate can be written."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        return json.dumps(content, separators=(",", ":")).encode()


def error_body(error: GatewayError) -> dict[str, Any]:
    """The error object that openai's SDKs read; its `type` follows the status."""
    kind = "server_error" if error.status >= 500 else "invalid_request_error"
    if error.status == 429:
        kind = "rate_limit_exceeded"
    code = CODES.get(error.code, error.code)
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": code}}


def error_frame(error: GatewayError) -> bytes:
    """An error inside a stream of server-sent events: the SDKs raise as soon as they read it."""
    return f"data: {json.dumps(error_body(error))}\n\n".encode()


def error_response(error: GatewayError) -> Response:
    """An error before the stream. The SDK retries by itself, so each answer says whether that is any use."""
    headers = retry_headers(error)
    if error.retry_after is not None:
        headers["retry-after-ms"] = str(math.ceil(error.retry_after * 1000))
    elif error.status == 429:
        headers |= SHORTEST_RETRY
    # A provider that was too slow may have done, and billed, the work: the client decides whether to ask again.
    again = error.retryable and error.status != 504
    return JsonBody(
        error_body(error), status_code=error.status, headers=headers | {"x-should-retry": str(again).lower()}
    )


SAID = "`error.message` is a sentence, `error.code` a stable word."
REFUSED: dict[int | str, dict[str, Any]] = {
    "4XX": {"description": f"Refused. {SAID}", "model": ErrorBody},
    "5XX": {"description": f"Failed. {SAID}", "model": ErrorBody},
}
"""What OpenAPI says of every route's refusals; FastAPI's own 422 never happens."""


def documented(schema: dict[str, Any], *, streams: bool = False) -> dict[int | str, dict[str, Any]]:
    """What a route's OpenAPI operation says of its answers."""
    content: dict[str, Any] = {"application/json": {"schema": schema}}
    if streams:
        content["text/event-stream"] = EVENTS
    return {200: {"description": "The answer.", "content": content}, **REFUSED}


def object_schema(kind: str, *required: str) -> dict[str, Any]:
    """The schema of one of OpenAI's objects, by what every client relies on."""
    return {
        "type": "object",
        "required": ["object", *required],
        "properties": {"object": {"type": "string", "const": kind}},
    }


WIRE = Wire("openai", re.compile(r"/v1(/.*)?"), error_response)
