"""What a connector's remote service says when it refuses: its own status, its own words, without the credential."""

from __future__ import annotations

import aiohttp

from adapters.http import retry_after
from gateway.config import ProviderRow
from gateway.connector import Connector
from gateway.errors import (
    Conflict,
    Forbidden,
    GatewayError,
    InvalidRequest,
    NotFound,
    PayloadTooLarge,
    RateLimited,
    Unauthorized,
    UpstreamError,
    UpstreamUnavailable,
)

REMOTE = "remote_service"
"""The code of every error that is the remote service's own."""
KINDS: dict[int, type[GatewayError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: PayloadTooLarge,
    429: RateLimited,
    503: UpstreamUnavailable,
}
SHORTEST_SECRET = 4
"""Characters. Anything shorter would blank out ordinary words."""


def remote_failure(row: ProviderRow, response: aiohttp.ClientResponse, body: bytes) -> GatewayError:
    """The GatewayError for an error answer, with its status and body."""
    status = response.status
    if status < 400:
        return UpstreamError(
            f"The remote service answered with status {status}; redirects are not followed.", provider=row.name
        )
    text = body.decode("utf-8", "replace").strip()
    empty = f"Remote service returned error status {status} with empty body"
    kind = KINDS.get(status, InvalidRequest if status < 500 else UpstreamError)
    return kind(
        f"Error from remote service: {text}" if text else empty,
        status=status,
        code=REMOTE,
        retryable=status in (429, 503),
        provider=row.name,
        retry_after=retry_after(response.headers),
    )


def scrub(text: str, connector: Connector) -> str:
    """`text` without the connector's credential."""
    for secret in sorted(connector.credential.values(), key=len, reverse=True):
        if len(secret) >= SHORTEST_SECRET:
            text = text.replace(secret, "[secret]")
    return text
