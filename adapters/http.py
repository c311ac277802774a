"""The HTTP transport of the adapters: one aiohttp session per provider, its failures told as GatewayErrors by status.

A response is read inside `async with upstream.send(...)`; leaving the block closes the connection at once unless the
body was read to its end. Bytes arrive through `read`, as the socket gives them and with its back-pressure.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from gateway.config import ProviderRow
from gateway.errors import (
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

CONNECT_SECONDS = 10.0
LONGEST_ERROR_BODY = 64 * 1024
LONGEST_QUOTE = 300


class HttpUpstream:
    """The session of one provider row. Built without a running loop; the session opens with the first request.

    `explain` tells an error answer (its head and body) as a GatewayError; `ca_file` overrides the row's.
    """

    def __init__(
        self,
        row: ProviderRow,
        base_url: str,
        headers: Mapping[str, str] | None = None,
        *,
        ca_file: Path | None = None,
        explain: Callable[[ProviderRow, aiohttp.ClientResponse, bytes], GatewayError] | None = None,
    ) -> None:
        self.row = row
        self._ca_file = ca_file or row.ca_file
        self._explain = explain or error_for_response
        self.base_url = base_url.rstrip("/")
        self._headers = dict(headers or {})
        self._session: aiohttp.ClientSession | None = None

    @asynccontextmanager
    async def send(
        self,
        method: str,
        path: str | URL,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        accept_errors: bool = False,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request to `base_url + path` (or to `path`, if it is a whole URL) and wait for the answer's head.

        A `URL` is sent exactly as it is encoded.
        Raises a GatewayError for anything but a 2xx answer, unless `accept_errors`.
        """
        url = path if isinstance(path, URL) or "://" in path else self.base_url + path
        with transport_errors(self.row):
            async with self._open().request(
                method, url, data=body, headers={**self._headers, **(headers or {})}, allow_redirects=False
            ) as response:
                if not accept_errors and not 200 <= response.status < 300:
                    raise self._explain(self.row, response, await error_body(response))
                yield response

    async def post_json(self, path: str, value: Any, headers: Mapping[str, str] | None = None) -> Any:
        """POST `value` as JSON and read the whole JSON answer. Raises GatewayError."""
        head = {"content-type": "application/json", **(headers or {})}
        async with self.send("POST", path, body=msgspec.json.encode(value), headers=head) as response:
            return decode_json(self.row, await response.read())

    async def aclose(self) -> None:
        """Close the session and its idle connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            context = ssl.create_default_context(cafile=str(self._ca_file)) if self._ca_file else True
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self.row.connections, ssl=context),
                # Silence is bounded by `gateway/streams.py`; a total time would cut a healthy stream.
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=64 * 1024,
            )
        return self._session


async def read(response: aiohttp.ClientResponse, row: ProviderRow) -> AsyncGenerator[bytes, None]:
    """The body's bytes as they arrive. Raises Truncated when the connection breaks before the body's end."""
    with transport_errors(row):
        async for data in response.content.iter_any():
            yield data


@contextmanager
def transport_errors(row: ProviderRow) -> Iterator[None]:
    """Turn aiohttp's exceptions into GatewayErrors that name the provider and never quote a URL."""
    try:
        yield
    except aiohttp.ClientConnectorDNSError as error:
        raise UpstreamUnavailable(
            f"The host of provider {row.name!r} is unknown; check its base_url.", provider=row.name
        ) from error
    except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientSSLError) as error:
        raise UpstreamUnavailable(
            f"The TLS connection to provider {row.name!r} failed; check its certificate and ca_file.",
            provider=row.name,
            retryable=False,
        ) from error
    except (aiohttp.ConnectionTimeoutError, aiohttp.SocketTimeoutError) as error:
        raise UpstreamTimeout(f"Provider {row.name!r} did not answer in time.", provider=row.name) from error
    except aiohttp.ClientConnectorError as error:
        raise UpstreamUnavailable(
            f"Provider {row.name!r} refused the connection; is it running?", provider=row.name
        ) from error
    except aiohttp.InvalidURL as error:
        raise UpstreamError(f"The base_url of provider {row.name!r} is not a URL.", provider=row.name) from error
    except aiohttp.ServerDisconnectedError as error:
        raise UpstreamUnavailable(
            f"Provider {row.name!r} closed the connection without an answer.", provider=row.name
        ) from error
    except aiohttp.ClientPayloadError as error:
        raise Truncated(f"Provider {row.name!r} broke off in the middle of its answer.", provider=row.name) from error
    except (aiohttp.ClientError, ConnectionError, asyncio.IncompleteReadError) as error:
        raise UpstreamError(
            f"The connection to provider {row.name!r} failed ({type(error).__name__}).", provider=row.name
        ) from error


def error_for_status(
    row: ProviderRow, status: int, message: str = "", *, code: str | None = None, retry_after: float | None = None
) -> GatewayError:
    """The GatewayError for an upstream's error status. `message` is the upstream's own sentence, if it gave one."""
    said = f": {row.scrub(message)[:LONGEST_QUOTE]}" if message else "."
    name = row.name
    if status in (401, 403):
        # The key is ours, so the caller can do nothing about it, and the upstream's text may quote the key.
        return UpstreamError(
            f"Provider {name!r} refused Polywire's own credentials ({status}); its operator must check the key.",
            provider=name,
            code="provider_credentials",
        )
    if status == 404:
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
        kind = ContextLengthExceeded if code in CONTEXT_CODES else InvalidRequest
        return kind(f"Provider {name!r} refused the request{said}", provider=name)
    return UpstreamError(f"Provider {name!r} answered with status {status}{said}", provider=name)


CONTEXT_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error"})


def error_for_response(row: ProviderRow, response: aiohttp.ClientResponse, body: bytes) -> GatewayError:
    """The GatewayError for an error answer with one of the usual JSON bodies; any other body is not quoted."""
    message, code = _message_and_code(body)
    return error_for_status(row, response.status, message, code=code, retry_after=retry_after(response.headers))


def decode_json(row: ProviderRow, body: bytes) -> Any:
    """`body` as JSON. Raises UpstreamError when it is not."""
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise UpstreamError(
            f"Provider {row.name!r} answered with something that is not JSON.", provider=row.name
        ) from error


def bearer(row: ProviderRow) -> dict[str, str]:
    """The authorization header of a row with a key. Raises UpstreamError when its variable is empty."""
    if row.api_key_env and not row.api_key:
        raise UpstreamError(
            f"Provider {row.name!r} has no key: set the environment variable {row.api_key_env} and restart.",
            provider=row.name,
            code="provider_credentials",
        )
    return {"authorization": f"Bearer {row.api_key}"} if row.api_key else {}


async def error_body(response: aiohttp.ClientResponse) -> bytes:
    """At most LONGEST_ERROR_BODY bytes of an error answer; what breaks off is as good as empty."""
    pieces, size = [], 0
    try:
        async for data in response.content.iter_any():
            pieces.append(data)
            size += len(data)
            if size >= LONGEST_ERROR_BODY:
                break
    except aiohttp.ClientError:
        return b""
    return b"".join(pieces)[:LONGEST_ERROR_BODY]


def _message_and_code(body: bytes) -> tuple[str, str | None]:
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


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def _problems(value: object) -> str:
    """FastAPI's list of validation errors as one sentence: `body.prompt: Field required`."""
    problems = [problem for problem in value if isinstance(problem, dict)] if isinstance(value, list) else []
    return "; ".join(
        ".".join(str(step) for step in problem.get("loc") or ()) + ": " + _string(problem.get("msg"))
        for problem in problems
    )


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of `retry-after-ms` or `Retry-After` (a number or an HTTP date), None when there is neither."""
    try:
        if (milliseconds := headers.get("retry-after-ms")) is not None:
            return max(0.0, float(milliseconds) / 1000)
        value = headers.get("retry-after")
        if value is None:
            return None
        if value.strip().replace(".", "", 1).isdigit():
            return float(value)
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None
