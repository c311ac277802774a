"""What goes wrong over HTTP, told as GatewayErrors: by exception class and by status, never by searching a text."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
import msgspec

from gateway.config import ProviderRow
from gateway.errors import (
    ContentFiltered,
    ContextLengthExceeded,
    GatewayError,
    InvalidRequest,
    NotFound,
    PayloadTooLarge,
    RateLimited,
    Truncated,
    UpstreamError,
    UpstreamTimeout,
    UpstreamUnavailable,
)

LONGEST_QUOTE = 300
CONTEXT_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error"})
FILTER_CODES = frozenset({"content_filter", "content_policy_violation"})


class transport_errors:  # noqa: N801 - reads as a function: `with transport_errors(row):`
    """Turns aiohttp's exceptions into GatewayErrors that name the provider and never quote a URL."""

    __slots__ = ("_row",)

    def __init__(self, row: ProviderRow) -> None:
        self._row = row

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError):
            # Its text is the URL, which may hold a password.
            raise UpstreamError(
                f"The base_url of provider {self._row.name!r} is not a URL.", provider=self._row.name
            ) from None
        if isinstance(error, aiohttp.ClientError | ConnectionError | asyncio.IncompleteReadError):
            raise _transport_error(self._row, error) from error


def _transport_error(row: ProviderRow, error: Exception) -> GatewayError:
    """By the exception's class, the narrowest first."""
    match error:
        case aiohttp.ClientConnectorDNSError():
            return UpstreamUnavailable(
                f"The host of provider {row.name!r} is unknown; check its base_url.", provider=row.name
            )
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError():
            return UpstreamUnavailable(
                f"The TLS connection to provider {row.name!r} failed; check its certificate and ca_file.",
                provider=row.name,
                retryable=False,
            )
        case aiohttp.ConnectionTimeoutError() | aiohttp.SocketTimeoutError():
            return UpstreamTimeout(f"Provider {row.name!r} did not answer in time.", provider=row.name)
        case aiohttp.ClientConnectorError():
            return UpstreamUnavailable(
                f"Provider {row.name!r} cannot be reached; is it running, and is its base_url right?",
                provider=row.name,
            )
        case aiohttp.ClientPayloadError():
            return Truncated(f"Provider {row.name!r} broke off in the middle of its answer.", provider=row.name)
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientOSError() | ConnectionError():
            # Mostly a kept-alive connection that the provider closed in the same moment: worth another try.
            return UpstreamUnavailable(
                f"Provider {row.name!r} closed the connection without an answer.", provider=row.name
            )
        case _:
            return UpstreamError(
                f"The connection to provider {row.name!r} failed ({type(error).__name__}).", provider=row.name
            )


def error_for_status(
    row: ProviderRow, status: int, message: str = "", *, code: str | None = None, retry_after: float | None = None
) -> GatewayError:
    """The GatewayError for an upstream's error status. `message` is the upstream's own sentence, if it gave one."""
    said = f": {row.scrub(message)[:LONGEST_QUOTE]}" if message else "."
    name = row.name
    if status in (401, 403):
        # The key is ours, so the caller can do nothing about it, and the upstream's text may quote the key.
        return UpstreamError(
            f"Provider {name!r} refused Polywire's own credentials ({status}); its operator must check {_secret(row)}.",
            provider=name,
            code="provider_credentials",
        )
    if status == 402:
        # The account is ours as well.
        return UpstreamError(
            f"Provider {name!r} wants to be paid ({status}); its operator must check the account's billing.",
            provider=name,
            code="provider_billing",
        )
    if status == 404:
        said = said if message else "; check its upstream id, and the provider's base_url."
        return NotFound(f"Provider {name!r} does not know this model{said}", provider=name, code="model_not_found")
    if status == 413:
        return PayloadTooLarge(f"Provider {name!r} finds the request too large{said}", provider=name)
    if status == 429:
        return RateLimited(f"Provider {name!r} is limiting requests{said}", provider=name, retry_after=retry_after)
    if status in (408, 504):
        return UpstreamTimeout(f"Provider {name!r} timed out{said}", provider=name)
    if status in (503, 529):
        return UpstreamUnavailable(f"Provider {name!r} is overloaded{said}", provider=name, retry_after=retry_after)
    if 400 <= status < 500:
        return _refusal(code)(f"Provider {name!r} refused the request{said}", provider=name)
    return UpstreamError(f"Provider {name!r} answered with status {status}{said}", provider=name)


def _secret(row: ProviderRow) -> str:
    variable = row.api_key_env or row.password_env
    return f"the value of {variable}" if variable else "the key"


def error_for_response(row: ProviderRow, response: aiohttp.ClientResponse, body: bytes) -> GatewayError:
    """The GatewayError for an error answer with one of the usual JSON bodies; any other body is not quoted."""
    message, code = message_and_code(body)
    return error_for_status(row, response.status, message, code=code, retry_after=retry_after(response.headers))


def decode_json(row: ProviderRow, body: bytes) -> Any:
    """`body` as JSON. Raises UpstreamError when it is not."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UpstreamError(
            f"Provider {row.name!r} answered with something that is not JSON.", provider=row.name
        ) from error


def message_and_code(body: bytes) -> tuple[str, str | None]:
    """`{"error": {"message"|"reason", "code"|"type"}}`, or a sentence under `error`, `detail` or `message`."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return "", None
    if not isinstance(value, dict):
        return "", None
    error = value.get("error")
    if isinstance(error, dict):
        code = next((word for word in (error.get("code"), error.get("type")) if isinstance(word, str)), None)
        return _string(error.get("message")) or _string(error.get("reason")), code
    sentences = (_string(value.get(key)) or _problems(value.get(key)) for key in ("error", "detail", "message"))
    return next(filter(None, sentences), ""), None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of `retry-after-ms` or `Retry-After` (a number or an HTTP date), None when there is neither."""
    milliseconds, value = headers.get("retry-after-ms"), headers.get("retry-after")
    try:
        if milliseconds is not None:
            seconds = float(milliseconds) / 1000
        elif value is None:
            return None
        elif value.strip().replace(".", "", 1).isdigit():
            seconds = float(value)
        else:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
    except (ValueError, OverflowError):
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _refusal(code: str | None) -> type[GatewayError]:
    if code in CONTEXT_CODES:
        return ContextLengthExceeded
    return ContentFiltered if code in FILTER_CODES else InvalidRequest


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def _problems(value: object) -> str:
    """FastAPI's list of validation errors as one sentence: `body.prompt: Field required`."""
    problems = [problem for problem in value if isinstance(problem, dict)] if isinstance(value, list) else []
    return "; ".join(
        ".".join(str(step) for step in problem.get("loc") or ()) + ": " + _string(problem.get("msg"))
        for problem in problems
    )
