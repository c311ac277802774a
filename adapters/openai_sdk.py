"""The openai package's client for one row, and its exceptions as GatewayErrors by class and status.

Transcription uses it; chat and speech do not (see adapters/openai_chat.py). Its texts repeat the upstream's body, in
which a key may stand, so no error of ours carries one of its exceptions along.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
from openai import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    AsyncOpenAI,
    DefaultAsyncHttpxClient,
    OpenAIError,
)

from adapters.http import CONNECT_SECONDS, bearer, proxy_for
from adapters.http_errors import error_for_status, message_and_code, retry_after
from gateway.config import ProviderRow
from gateway.errors import GatewayError, Truncated, UpstreamError, UpstreamTimeout, UpstreamUnavailable
from gateway.tracing import trace_headers

DEFAULT_BASE_URL = "https://api.openai.com/v1"
WITHOUT_KEY = "none"
"""The package wants a key, and would else take one from the environment and give it to whatever base_url says."""


def client(row: ProviderRow) -> AsyncOpenAI:
    """The client of `row`, for all its requests. Raises UpstreamError when the row's key is not set."""
    bearer(row)
    base_url = row.base_url or DEFAULT_BASE_URL
    context = ssl.create_default_context(cafile=str(row.ca_file)) if row.ca_file else True
    return AsyncOpenAI(
        base_url=base_url,
        api_key=row.api_key or WITHOUT_KEY,
        # `gateway/streams.py` retries, and bounds every silence.
        max_retries=0,
        timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),
        http_client=DefaultAsyncHttpxClient(
            verify=context,
            limits=httpx2.Limits(max_connections=row.connections),
            follow_redirects=False,
            event_hooks={"request": [_add_trace]},
            # Left to itself, the package would ask a proxy for this machine as well.
            trust_env=False,
            proxy=proxy_for(base_url),
        ),
    )


async def _add_trace(request: httpx2.Request) -> None:
    request.headers.update(trace_headers())


@contextmanager
def sdk_errors(row: ProviderRow) -> Iterator[None]:
    """Turn the package's exceptions, and those of its transport while a body is read, into GatewayErrors."""
    try:
        yield
    except APIStatusError as error:
        message, code = message_and_code(error.response.content)
        wait = retry_after(error.response.headers)
        raise error_for_status(row, error.status_code, message, code=code, retry_after=wait) from None
    except (APITimeoutError, httpx2.TimeoutException):
        raise UpstreamTimeout(f"Provider {row.name!r} did not answer in time.", provider=row.name) from None
    except APIConnectionError as error:
        raise _unavailable(row, error) from None
    except httpx2.TransportError:
        raise Truncated(f"Provider {row.name!r} broke off in the middle of its answer.", provider=row.name) from None
    except (OpenAIError, httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise UpstreamError(
            f"The request to provider {row.name!r} failed ({type(error).__name__}).", provider=row.name
        ) from None


def _unavailable(row: ProviderRow, error: BaseException) -> GatewayError:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return UpstreamUnavailable(
                f"The TLS connection to provider {row.name!r} failed; check its certificate and ca_file.",
                provider=row.name,
                retryable=False,
            )
        cause = cause.__cause__ or cause.__context__
    return UpstreamUnavailable(
        f"Provider {row.name!r} cannot be reached; is it running, and is its base_url right?", provider=row.name
    )
