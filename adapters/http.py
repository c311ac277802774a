"""The HTTP transport of the adapters: one aiohttp session per provider, its failures told as GatewayErrors by status.

A response is read inside `async with upstream.send(...)`; leaving the block closes the connection at once unless the
body was read to its end. Bytes arrive through `read`, as the socket gives them and with its back-pressure.
"""

from __future__ import annotations

import asyncio
import io
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver
from yarl import URL

from adapters.breaking import tell_breaks
from adapters.http_errors import decode_json, error_for_response, error_for_status, retry_after, transport_errors
from adapters.posting import Connections, Posting, posting_to
from adapters.resuming import read_at_once
from gateway.config import ProviderRow
from gateway.errors import GatewayError, UpstreamError
from gateway.tracing import trace_headers

__all__ = [
    "HttpUpstream",
    "bearer",
    "decode_json",
    "error_body",
    "error_for_response",
    "error_for_status",
    "joined",
    "proxy_for",
    "read",
    "read_piece",
    "read_start",
    "read_whole",
    "retry_after",
    "transport_errors",
]

read_at_once()
tell_breaks()

CONNECT_SECONDS = 10.0
ERROR_BODY_SECONDS = 5.0
LARGEST_PIECE = 16 * 1024
"""What is read at a time becomes events, frames and one write; of a reader that takes nothing, all three are held."""
READ_BUFFER = 64 * 1024
SIGN = 4
"""Bytes, after white space, that tell JSON, events, a web page and the kinds of audio from each other."""
LONGEST_ERROR_BODY = 64 * 1024
LONGEST_BODY = 32 * 1024 * 1024
LARGE_REQUEST = 1024 * 1024
"""Bytes from which aiohttp wants a file, so that one write does not hold up the loop."""


class HttpUpstream:
    """The session of one provider row. Built without a running loop; the session opens with the first request.

    `explain` tells an error answer (its head and body) as a GatewayError; `ca_file` overrides the row's; `resolver`
    decides which addresses a name may lead to.
    """

    def __init__(
        self,
        row: ProviderRow,
        base_url: str,
        headers: Mapping[str, str] | None = None,
        *,
        ca_file: Path | None = None,
        explain: Callable[[ProviderRow, aiohttp.ClientResponse, bytes], GatewayError] | None = None,
        resolver: AbstractResolver | None = None,
    ) -> None:
        self.row = row
        self._resolver = resolver
        self._ca_file = ca_file or row.ca_file
        self._explain = explain or error_for_response
        self.base_url = base_url.rstrip("/")
        self._headers = dict(headers or {})
        self._session: aiohttp.ClientSession | None = None
        self._posting: Posting | None = None

    def send(
        self,
        method: str,
        path: str | URL,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        accept_errors: bool = False,
    ) -> Exchange:
        """Send a request to `base_url + path` (or to `path`, if it is a whole URL) and wait for the answer's head.

        A `URL` is sent exactly as it is encoded.
        Raises a GatewayError for anything but a 2xx answer, unless `accept_errors`.
        """
        url = path if isinstance(path, URL) or "://" in path else self.base_url + path
        head = {**self._headers, **trace_headers(), **(headers or {})}
        return Exchange(
            self.row, partial(self._request, method, url, body, head), None if accept_errors else self._explain
        )

    async def post_json(self, path: str, value: Any, headers: Mapping[str, str] | None = None) -> Any:
        """POST `value` as JSON and read the whole JSON answer. Raises GatewayError."""
        head = {"content-type": "application/json", **(headers or {})}
        async with self.send("POST", path, body=msgspec.json.encode(value), headers=head) as response:
            return decode_json(self.row, await read_whole(response, self.row))

    async def aclose(self) -> None:
        """Close the session and its idle connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _request(
        self, method: str, url: str | URL, body: bytes | None, headers: Mapping[str, str]
    ) -> aiohttp.ClientResponse:
        session = self._open()
        try:
            if method == "POST" and body is not None and self._posting is not None:
                target = URL(url)
                if self._posting.takes(target, body):
                    return await self._posting.post(target, headers, body)
            data = io.BytesIO(body) if body is not None and len(body) >= LARGE_REQUEST else body
            return await session.request(method, url, data=data, headers=headers, allow_redirects=False)
        except aiohttp.ClientError:
            # Some of them are ValueErrors as well.
            raise
        except ValueError:
            # aiohttp's word for a URL or header it cannot send; its text may quote the key or a password.
            raise UpstreamError(
                f"Polywire cannot make a request for provider {self.row.name!r}; check its base_url and its key.",
                provider=self.row.name,
            ) from None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            context = ssl.create_default_context(cafile=str(self._ca_file)) if self._ca_file else True
            # A resolver that refuses addresses would be passed by: a proxy resolves names itself.
            proxy = None if self._resolver else proxy_for(self.base_url)
            # Not `trust_env`: that would read ~/.netrc for each request, and send what it finds there.
            connector = Connections(limit=self.row.connections, ssl=context, resolver=self._resolver)
            self._session = aiohttp.ClientSession(
                proxy=proxy,
                connector=connector,
                # Silence is bounded by `gateway/streams.py`; a total time would cut a healthy stream.
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
                # A compressor in the path holds tokens back.
                headers={"accept-encoding": "identity"},
                read_bufsize=READ_BUFFER,
            )
            self._posting = None if proxy else posting_to(self.base_url, self._session, connector, READ_BUFFER)
        return self._session


class Exchange(AbstractAsyncContextManager[aiohttp.ClientResponse]):
    """`HttpUpstream.send` as a context manager; not a generator, which costs each request four times as much."""

    __slots__ = ("_ask", "_explain", "_response", "_row")

    def __init__(
        self,
        row: ProviderRow,
        ask: Callable[[], Awaitable[aiohttp.ClientResponse]],
        explain: Callable[[ProviderRow, aiohttp.ClientResponse, bytes], GatewayError] | None,
    ) -> None:
        self._row = row
        self._ask = ask
        self._explain = explain
        self._response: aiohttp.ClientResponse | None = None

    async def __aenter__(self) -> aiohttp.ClientResponse:
        with transport_errors(self._row):
            response = await self._ask()
            if self._explain is None or 200 <= response.status < 300:
                self._response = response
                return response
            async with response:
                raise self._explain(self._row, response, await error_body(response))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # One that was read to its end has given its connection back.
        if self._response is not None and self._response.connection is not None:
            await self._response.__aexit__(kind, error, traceback)
        transport_errors(self._row).__exit__(kind, error, traceback)


def proxy_for(url: str) -> str | None:
    """The proxy that HTTPS_PROXY, HTTP_PROXY and NO_PROXY name for `url`; none for this machine."""
    try:
        target = URL(url)
        host, address = target.host, f"{target.host}:{target.port}"
    except ValueError:
        return None
    if host is None or _is_this_machine(host) or proxy_bypass(address):
        return None
    return getproxies().get(target.scheme)


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


async def read(response: aiohttp.ClientResponse, row: ProviderRow) -> AsyncGenerator[bytes, None]:
    """The body's bytes as they arrive. Raises Truncated when the connection breaks before the body's end."""
    with transport_errors(row):
        while data := await read_piece(response):
            yield data


async def read_piece(response: aiohttp.ClientResponse) -> bytes:
    """The next bytes of the body, none at its end. Raises aiohttp's exceptions, after what had arrived before them.

    aiohttp by itself raises at once and drops those bytes.
    """
    try:
        return await response.content.read(LARGEST_PIECE)
    except (aiohttp.ClientError, ConnectionError):
        if left := response.content._read_nowait(-1):
            return left
        raise


async def read_start(response: aiohttp.ClientResponse) -> bytes:
    """As `read_piece`, but for the first bytes of a body, and enough of them to tell what it is, if it has so many."""
    start = await read_piece(response)
    while start and len(start.lstrip()) < SIGN and len(start) < READ_BUFFER and (more := await read_piece(response)):
        start += more
    return start


async def read_whole(response: aiohttp.ClientResponse, row: ProviderRow, limit: int = LONGEST_BODY) -> bytes:
    """The whole body. Raises Truncated when it breaks off, UpstreamError when it is longer than `limit` bytes."""
    with transport_errors(row):
        return await joined(response.content.iter_any(), row, limit)


async def joined(pieces: AsyncIterator[bytes], row: ProviderRow, limit: int = LONGEST_BODY) -> bytes:
    """All of `pieces`. Raises UpstreamError when they are longer than `limit` bytes."""
    kept, size = [], 0
    async for data in pieces:
        size += len(data)
        if size > limit:
            raise UpstreamError(f"Provider {row.name!r} answered with more than {limit} bytes.", provider=row.name)
        kept.append(data)
    return b"".join(kept)


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
    """At most LONGEST_ERROR_BODY bytes of an error answer; one that breaks off or stalls is as good as empty."""
    pieces, size = [], 0
    try:
        async with asyncio.timeout(ERROR_BODY_SECONDS):
            while size < LONGEST_ERROR_BODY and (data := await response.content.readany()):
                pieces.append(data)
                size += len(data)
    except (TimeoutError, aiohttp.ClientError):
        return b""
    return b"".join(pieces)[:LONGEST_ERROR_BODY]
