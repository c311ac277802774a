"""How ML Commons says an error: OpenSearch's error object, its router's flat form, or one frame inside a stream."""

from __future__ import annotations

import json
import re
from typing import Any

from starlette.responses import JSONResponse, Response

from gateway.errors import GatewayError, InternalError, InvalidRequest
from wires.base import Wire, retry_headers
from wires.documents import any_of, fields, refusals

CONTENT_TYPE = "application/json; charset=UTF-8"
FLAT = "router"
"""The code of the router's own refusals, whose body is one sentence."""
NO_HANDLER = "no_handler"
REMOTE_INFERENCE_OFF = "remote_inference_disabled"
STATUS_EXCEPTION = frozenset({"remote_service", "status_exception", REMOTE_INFERENCE_OFF})
"""Codes of refusals that OpenSearch raises with a status and not as a wrong argument."""
SENT_ONCE = frozenset({"upstream_truncated", "upstream_timeout"})
"""Codes of failures after the model was at work. opensearch-py sends a request again for 502 and 504, up to three
times, so these are answered as 500."""


def error_type(error: GatewayError) -> str:
    """OpenSearch's name for the kind of `error`."""
    if error.code.endswith("_exception"):
        return error.code
    if _unauthorized(error):
        return "security_exception"
    if isinstance(error, InvalidRequest) and error.status == 400 and error.code not in STATUS_EXCEPTION:
        return "illegal_argument_exception"
    return "status_exception"


def error_body(error: GatewayError, status: int) -> dict[str, Any]:
    """The body of a refusal."""
    if error.code == FLAT:
        return {"error": error.message, "status": status}
    if error.code == NO_HANDLER:
        return {"error": error.message}
    cause = {"type": error_type(error), "reason": error.message}
    return {"error": {"root_cause": [cause], **cause}, "status": status}


def error_response(error: GatewayError) -> Response:
    """A refusal before the stream."""
    status = 500 if error.code in SENT_ONCE else error.status
    headers = retry_headers(error)
    if _unauthorized(error):
        headers["www-authenticate"] = 'Basic realm="Polywire"'
    return JSONResponse(error_body(error, status), status, headers, media_type=CONTENT_TYPE)


def _unauthorized(error: GatewayError) -> bool:
    """Whether it is we who want a key, and not a remote service."""
    return error.status == 401 and error.code not in STATUS_EXCEPTION


def error_frame(error: GatewayError) -> bytes:
    """An error inside a stream: its last frame. The space is ML Commons' own."""
    text = error.message.strip() or "Request failed"
    return f'data: {{"error": {json.dumps(text, ensure_ascii=False)}}}\n\n'.encode("utf-8", "replace")


def illegal_argument(message: str) -> InvalidRequest:
    """OpenSearch's IllegalArgumentException."""
    return InvalidRequest(message, code="illegal_argument_exception")


def illegal_state(message: str) -> InternalError:
    """OpenSearch's IllegalStateException."""
    return InternalError(message, code="illegal_state_exception")


def refused(message: str, status: int = 400) -> InvalidRequest:
    """OpenSearch's OpenSearchStatusException."""
    return InvalidRequest(message, status=status, code="status_exception")


REFUSALS = refusals(fields("error", error=any_of("string", "object"), status="integer"))
WIRE = Wire("opensearch", re.compile(r"/_(plugins|cluster|nodes)(/.*)?"), error_response)
