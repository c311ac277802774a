"""How the Replicate wire says an error: a problem object (RFC 7807) with `title`, `detail` and `status`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from gateway.errors import GatewayError, InvalidRequest, reason_phrase
from wires.base import Wire, retry_headers
from wires.documents import fields, refusals

TITLES = {401: "Unauthenticated", 404: "Not found", 422: "Input validation failed"}


def problem(error: GatewayError) -> dict[str, Any]:
    """The object that Replicate's clients read; always an object, since a list breaks the Python client."""
    body: dict[str, Any] = {
        "title": TITLES.get(error.status) or reason_phrase(error.status),
        "detail": error.message,
        "status": error.status,
    }
    if error.status == 422 and error.param:
        body["invalid_fields"] = [{"type": error.code, "field": error.param, "description": error.message}]
    return body


def problem_response(error: GatewayError) -> Response:
    """A refusal. replicate's second Python client retries by itself, so it is told whether that is any use."""
    headers = retry_headers(error) | {"x-should-retry": "true" if error.retryable else "false"}
    return JsonResponse(problem(error), error.status, headers, media_type="application/problem+json")


def invalid(message: str, param: str) -> InvalidRequest:
    """A body that cannot be taken; the message never quotes what the caller sent."""
    return InvalidRequest(message, status=422, code="invalid_input", param=param)


class JsonResponse(Response):
    """JSON in ASCII: a client that splits lines at U+2028 finds none, and a lone surrogate can be written."""

    def __init__(
        self,
        content: object,
        status_code: int = 200,
        headers: Mapping[str, str] | None = None,
        media_type: str = "application/json",
    ) -> None:
        super().__init__(json.dumps(content), status_code, dict(headers or {}), media_type)


REFUSALS = refusals(
    fields("title", "detail", "status", title="string", detail="string", status="integer"), "application/problem+json"
)
OWN = "predictions|deployments|streams|files|collections|account|hardware|trainings|webhooks"
WIRE = Wire("replicate", re.compile(rf"/v1/(v1(/.*)?|({OWN})(/.*)?|models/[^/]+/[^/]+(/.*)?)"), problem_response)
