"""The one exception tree of Polywire.

GatewayError
├── InvalidRequest 400            the caller can repair it
│   └── ContextLengthExceeded 400
├── Unsupported 400               the model or wire cannot do what was asked
├── ContentFiltered 400
├── Unauthorized 401
├── Forbidden 403
├── NotFound 404
├── Conflict 409
├── PayloadTooLarge 413
├── RateLimited 429               retry_after is set when it is known
├── Cancelled 499                 the client or we stopped it
├── InternalError 500             a fault of ours; its message never quotes the cause
├── UpstreamError 502             the provider answered with something that is not an answer
│   └── Truncated 502             the provider ended without its own terminal marker
├── UpstreamUnavailable 503
└── UpstreamTimeout 504

A vendor's exception becomes one of these inside its adapter, by status and never by searching its text.
A wire turns one of these into its own body. Messages are sentences the caller can act on and never hold a key.
"""

from __future__ import annotations

from http import HTTPStatus


class GatewayError(Exception):
    """An error with everything a wire needs to show it.

    `status` is an HTTP status, `code` a stable word for programs, `param` the request field at fault,
    `retry_after` seconds to wait, `provider` the configured name of the provider that failed.
    """

    status: int = 500
    code: str = "internal_error"
    retryable: bool = False

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str | None = None,
        retryable: bool | None = None,
        provider: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.provider = provider
        self.param = param
        self.retry_after = retry_after
        if status is not None:
            self.status = status
        if code is not None:
            self.code = code
        if retryable is not None:
            self.retryable = retryable


class InvalidRequest(GatewayError):
    status, code = 400, "invalid_request"


class ContextLengthExceeded(InvalidRequest):
    code = "context_length_exceeded"


class Unsupported(GatewayError):
    status, code = 400, "unsupported"


class ContentFiltered(GatewayError):
    status, code = 400, "content_filter"


class Unauthorized(GatewayError):
    status, code = 401, "unauthorized"


class Forbidden(GatewayError):
    status, code = 403, "forbidden"


class NotFound(GatewayError):
    status, code = 404, "not_found"


class Conflict(GatewayError):
    status, code = 409, "conflict"


class PayloadTooLarge(GatewayError):
    status, code = 413, "payload_too_large"


class RateLimited(GatewayError):
    status, code, retryable = 429, "rate_limited", True


class Cancelled(GatewayError):
    status, code = 499, "cancelled"


class InternalError(GatewayError):
    status, code = 500, "internal_error"


class UpstreamError(GatewayError):
    status, code = 502, "upstream_error"


class Truncated(UpstreamError):
    code = "upstream_truncated"


class UpstreamUnavailable(GatewayError):
    status, code, retryable = 503, "upstream_unavailable", True


class UpstreamTimeout(GatewayError):
    status, code, retryable = 504, "upstream_timeout", True


_BY_STATUS = {
    error.status: error
    for error in (
        *(InvalidRequest, Unauthorized, Forbidden, NotFound, Conflict, PayloadTooLarge, RateLimited, Cancelled),
        *(InternalError, UpstreamError, UpstreamUnavailable, UpstreamTimeout),
    )
}


def error_class(status: int) -> type[GatewayError]:
    """The class of errors with this status, `GatewayError` where there is none of its own."""
    return _BY_STATUS.get(status, GatewayError)


def reason_phrase(status: int) -> str:
    """The standard phrase of an HTTP status; `Client Closed Request` for 499, which has none in the standard."""
    return "Client Closed Request" if status == 499 else HTTPStatus(status).phrase
