"""Chat with Amazon Bedrock over ConverseStream. Row: region; optional endpoint_url, profile, api_key_env.

`api_key_env` names a Bedrock API key, which goes before AWS credentials. The upstream id is a model id, an inference
profile or any ARN that Converse takes. Images travel as data: URLs only.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from urllib.parse import quote

import msgspec

from adapters.aws import AwsUpstream
from adapters.converse import converse_body
from adapters.converse_stream import ConverseDecoder
from adapters.shortcut import ChatBursts, ChatShortcut, shortened
from gateway.config import ProviderRow, Settings
from gateway.events import Delta, Finished
from gateway.ports import Capabilities
from gateway.request import ChatRequest


class Bedrock:
    """A `ChatProvider` over `POST /model/{id}/converse-stream`."""

    capabilities = Capabilities()

    def __init__(self, row: ProviderRow, settings: Settings) -> None:
        self.name = row.name
        self._upstream = AwsUpstream(row, "bedrock-runtime")

    def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | Finished, None]:
        return shortened(partial(self._reads, request))

    async def aclose(self) -> None:
        await self._upstream.aclose()

    async def _reads(self, request: ChatRequest, shortcut: ChatShortcut) -> ChatBursts:
        body = msgspec.json.encode(converse_body(request))
        # An ARN holds `:` and `/`, which the signature wants encoded.
        path = f"/model/{quote(request.model, safe='')}/converse-stream"
        decoder = ConverseDecoder(self.name)
        async with aclosing(self._upstream.read(shortcut, path, body, decoder.feed)) as bursts:
            async for burst in bursts:
                yield burst
        yield (decoder.finish(),)
