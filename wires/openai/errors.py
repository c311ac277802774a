"""How the OpenAI wire says an error: `{"error": {message, type, param, code}}`, before a stream and inside one."""

from __future__ import annotations

import math
import re
from typing import Any

from starlette.responses import JSONResponse, Response

from gateway.errors import GatewayError
from wires.base import Wire, retry_headers

CODES = {"unauthorized": "invalid_api_key", "missing_api_key": "invalid_api_key", "rate_limited": "rate_limit_exceeded"}


def error_body(error: GatewayError) -> dict[str, Any]:
    """The error object that openai's SDKs read; its `type` follows the status."""
    kind = "server_error" if error.status >= 500 else "invalid_request_error"
    if error.status == 429:
        kind = "rate_limit_exceeded"
    code = CODES.get(error.code, error.code)
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": code}}


def error_response(error: GatewayError) -> Response:
    """An error before the stream. The SDK retries by itself, so each answer says whether that is any use."""
    headers = retry_headers(error) | {"x-should-retry": "true" if error.retryable else "false"}
    if error.retry_after is not None:
        headers["retry-after-ms"] = str(math.ceil(error.retry_after * 1000))
    return JSONResponse(error_body(error), status_code=error.status, headers=headers)


WIRE = Wire("openai", re.compile(r"/v1(/.*)?"), error_response)
