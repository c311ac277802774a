"""What AWS says when it fails -> GatewayError, by error code and status and never by searching a text.

One table serves the `x-amzn-errortype` of an HTTP answer and the exception and error frames inside a stream, since
they are the same codes in another spelling (`ThrottlingException`, `throttlingException`, `Throttling`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from adapters.http import error_for_status
from gateway.config import ProviderRow
from gateway.errors import GatewayError

STATUS = {
    "validation": 400,
    "textlengthexceeded": 400,
    "resourcenotfound": 404,
    "modeltimeout": 504,
    "modelinvocationtimeexceeded": 504,
    "modelerror": 502,
    "modelstreamerror": 502,
    "streambroken": 502,
    "throttling": 429,
    "throttled": 429,
    "toomanyrequests": 429,
    "modelnotready": 429,
    "servicequotaexceeded": 429,
    "internalserver": 500,
    "internalfailure": 500,
    "internalstreamfailure": 500,
    "servicefailure": 500,
    "internaldependency": 500,
    "serviceunavailable": 503,
}
CREDENTIALS = frozenset(
    {
        "accessdenied",
        "expiredtoken",
        "incompletesignature",
        "invalidclienttokenid",
        "invalidsignature",
        "missingauthenticationtoken",
        "optinrequired",
        "requestexpired",
        "signaturedoesnotmatch",
        "unrecognizedclient",
    }
)
"""Codes that mean our own credentials, whatever status they come with (several arrive as 400)."""

MODEL_ERRORS = frozenset({"modelerror", "modelstreamerror"})
CONTAINER_STATUSES = frozenset({400, 408, 413, 422, 429, 503, 504})
"""What a model behind AWS may say about the request itself; any other status is its own fault."""
RETRYABLE = frozenset({"modelnotready", "internalserver", "internalfailure", "servicefailure", "internaldependency"})


def aws_failure(
    row: ProviderRow, code: str, body: Mapping[str, Any], *, status: int = 502, retry_after: float | None = None
) -> GatewayError:
    """The GatewayError for AWS's `code`; `status` decides where the code is unknown. `body` is the error's JSON."""
    word = code_word(_text(body, "ErrorCode")) if "ErrorCode" in body else ""
    word = word if word in STATUS else code_word(code)
    message = _text(body, "message", "Message")
    status = 403 if word in CREDENTIALS else STATUS.get(word, status)
    original = body.get("originalStatusCode", body.get("OriginalStatusCode"))
    if word in MODEL_ERRORS:
        # Message names the account and its log group; the container's own words are what the caller can act on.
        message = _text(body, "originalMessage", "OriginalMessage") or ("" if "OriginalMessage" in body else message)
        status = original if original in CONTAINER_STATUSES else 502
    elif status == 424:
        status = 502
    error = error_for_status(row, status, message, code=code, retry_after=retry_after)
    if word in RETRYABLE:
        error.retryable = True
    return error


def code_word(code: str) -> str:
    """`code` without namespace, documentation address, suffix and capitals: how all its spellings agree."""
    word = code.partition(":")[0].rpartition("#")[2].strip().lower().removesuffix("exception")
    return word if word in STATUS else word.removesuffix("error")


def error_code(header: str | None, body: Mapping[str, Any]) -> str:
    """Where botocore finds the code: the `x-amzn-errortype` header, else the body's `code` or `__type`."""
    return header or _text(body, "code", "Code", "__type")


def json_object(payload: bytes) -> Mapping[str, Any]:
    """`payload` as a JSON object, or an empty one."""
    try:
        value = msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _text(body: Mapping[str, Any], *keys: str) -> str:
    return next((value for key in keys if isinstance(value := body.get(key), str) and value), "")
