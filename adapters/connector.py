"""Models behind ML Commons connectors: OpenAI's chat completions over `http`, Bedrock's Converse over `aws_sigv4`.

One provider serves them all: which connector is meant comes with each request. The key is the caller's own, so a
refusal of it stays 401 or 403, and no key or header of ours ever goes along. Redirects are not followed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from functools import partial
from typing import Any

from yarl import URL

from adapters.chat_http import read_chat
from adapters.connector_aws import read_converse, signed
from adapters.connector_call import Call, streamed_call, unstreamed_call
from adapters.connector_errors import remote_failure, scrub
from adapters.connector_resolver import PublicResolver
from adapters.http import HttpUpstream, read
from adapters.shortcut import ChatBursts, ChatShortcut, shortened
from gateway.config import CONNECTOR, ProviderRow, Settings
from gateway.connector import Connector
from gateway.errors import Forbidden, GatewayError, UpstreamError
from gateway.events import Delta, Finished
from gateway.ports import Capabilities
from gateway.request import ChatRequest
from gateway.template import decoded
from gateway.trust import Trust

LONGEST_ANSWER = 32 * 1024 * 1024


class ConnectorChat:
    """A `ConnectorProvider`. Private addresses have a session of their own, whose resolver lets them pass."""

    capabilities = Capabilities()

    def __init__(self, row: ProviderRow, settings: Settings) -> None:
        self.name = row.name
        self._row = row
        self._trust = Trust(settings)
        self._public = HttpUpstream(row, "", explain=remote_failure, resolver=PublicResolver())
        self._private = HttpUpstream(row, "", explain=remote_failure)

    def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | Finished, None]:
        return shortened(partial(self._reads, request))

    async def ask(self, connector: Connector, parameters: Mapping[str, str]) -> Any:
        """The remote answer as decoded JSON, or its text when it is none."""
        with _remote_errors(connector):
            call = unstreamed_call(connector, parameters)
            upstream = self._upstream(call.url)
            if connector.protocol == "aws_sigv4":
                call = signed(connector, call)
            return decoded(await self._answer(upstream, call))

    async def aclose(self) -> None:
        await self._public.aclose()
        await self._private.aclose()

    async def _reads(self, request: ChatRequest, shortcut: ChatShortcut) -> ChatBursts:
        connector: Connector = request.options[CONNECTOR]
        with _remote_errors(connector):
            call = streamed_call(connector, request)
            upstream = self._upstream(call.url)
            if connector.protocol == "aws_sigv4":
                source = read_converse(upstream, signed(connector, call), shortcut)
            else:
                source = read_chat(upstream, call.url, call.payload, call.headers, shortcut)
            async with aclosing(source) as bursts:
                async for burst in bursts:
                    yield burst

    def _upstream(self, url: str) -> HttpUpstream:
        """The session that may go to `url`. Raises InvalidRequest when a connector may not."""
        self._trust.check(url)
        return self._private if self._trust.reaches_private(url) else self._public

    async def _answer(self, upstream: HttpUpstream, call: Call) -> str:
        pieces, size = [], 0
        url = URL(call.url, encoded=True)
        async with (
            upstream.send(call.method, url, body=call.body, headers=call.headers) as response,
            aclosing(read(response, self._row)) as body,
        ):
            async for data in body:
                pieces.append(data)
                size += len(data)
                if size > LONGEST_ANSWER:
                    raise UpstreamError(f"The remote service answered with more than {LONGEST_ANSWER} bytes.")
        text = b"".join(pieces).decode("utf-8", "replace")
        if not text.strip():
            raise UpstreamError("Remote service returned empty response body")
        return text


@contextmanager
def _remote_errors(connector: Connector) -> Iterator[None]:
    """Keeps the connector's credential out of every message, and a refusal of it the caller's affair."""
    try:
        yield
    except GatewayError as error:
        error.message = scrub(error.message, connector)
        error.args = (error.message,)
        if error.code == "provider_credentials":
            raise Forbidden("Error from remote service: it refused the credential of the connector.") from error
        raise
