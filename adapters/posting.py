"""A POST that fits one write, over the connections of an aiohttp session but past the session itself.

The session builds anew for each request what is the same in all of them, and writes the body by a task. It keeps what
is not plain: proxies, credentials in a URL, large bodies, and the methods that may be sent twice; a POST never is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aiohttp import (
    BaseConnector,
    ClientConnectionResetError,
    ClientRequest,
    ClientResponse,
    ClientSession,
    ConnectionTimeoutError,
    TCPConnector,
    hdrs,
)
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection
from aiohttp.helpers import TimerNoop
from aiohttp.http_writer import StreamWriter, _serialize_headers
from aiohttp.tracing import Trace
from multidict import CIMultiDict
from yarl import URL

from adapters.answers import AnswerParser

LONGEST_POST = 60 * 1024
"""Bytes of a body. With its head it stays below what a transport takes before it asks to be waited for."""


class Connections(TCPConnector):
    """Gives no request a kept connection on which something came that nobody had asked for: it would be its answer."""

    async def _get(self, key: ConnectionKey, traces: list[Trace]) -> Connection | None:
        kept = await TCPConnector._get(self, key, traces)
        while kept is not None and kept._protocol is not None and kept._protocol._buffer:
            kept.close()
            kept = await TCPConnector._get(self, key, traces)
        return kept


def posting_to(url: str, session: ClientSession, connector: BaseConnector, read_buffer: int) -> Posting | None:
    """What sends to the host of `url`; None where the session must do it."""
    try:
        origin = URL(url)
    except ValueError:
        return None
    plain = origin.scheme in ("http", "https") and origin.raw_host and origin.raw_user is None is origin.raw_password
    return Posting(origin, session, connector, read_buffer) if plain else None


class Posting:
    """The requests of one session to one host."""

    def __init__(self, origin: URL, session: ClientSession, connector: BaseConnector, read_buffer: int) -> None:
        self._session = session
        self._connector = connector
        self._read_buffer = read_buffer
        self._host = origin.scheme, origin.authority
        self._loop = asyncio.get_running_loop()
        self._pattern = ClientRequest("POST", origin, headers=session.headers, session=session, loop=self._loop)
        self._timer = TimerNoop()

    def takes(self, url: URL, body: bytes) -> bool:
        """Whether the request goes to this host and fits one write."""
        return len(body) <= LONGEST_POST and self._host == (url.scheme, url.authority)

    async def post(self, url: URL, headers: Mapping[str, str], body: bytes) -> ClientResponse:
        """The answer's head. Raises what the session raises; ValueError for what cannot be sent."""
        head = CIMultiDict(self._pattern.headers)
        head.update(headers)
        head.setdefault(hdrs.CONTENT_TYPE, "application/octet-stream")
        head[hdrs.CONTENT_LENGTH] = str(len(body))
        data = _serialize_headers(f"POST {url.raw_path_qs} HTTP/1.1", head) + body
        connection = await self._connect()
        try:
            return await self._ask(connection, url, data)
        except BaseException:
            connection.close()
            raise

    async def _connect(self) -> Connection:
        try:
            return await self._connector.connect(self._pattern, traces=[], timeout=self._session.timeout)
        except TimeoutError as error:
            raise ConnectionTimeoutError("The connection took too long.") from error

    async def _ask(self, connection: Connection, url: URL, data: bytes) -> ClientResponse:
        protocol, transport = connection.protocol, connection.transport
        if protocol is None or transport is None or transport.is_closing():
            raise ClientConnectionResetError("Closed as soon as it was open.")
        parser = AnswerParser(protocol, self._loop, self._read_buffer)
        protocol._parser = parser  # type: ignore[assignment]  # it has what a connection asks of its parser
        transport.write(data)
        if protocol._tail:
            # A server that has no room may say so as soon as it is reached.
            protocol._drain_tail()
        response = ClientResponse(
            "POST",
            url,
            writer=None,
            continue100=None,
            timer=self._timer,
            request_info=self._pattern.request_info,
            traces=[],
            loop=self._loop,
            session=self._session,
            stream_writer=StreamWriter(protocol, self._loop),
        )
        try:
            return await response.start(connection)
        except BaseException:
            response.close()
            raise
