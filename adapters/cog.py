"""Chat with a model that a Cog server runs. Row: base_url (http://127.0.0.1:5000), api_key_env if a proxy asks for one.

A Cog server has one model, so the upstream id may be any word. It runs one prediction at a time unless told otherwise:
a second one is refused with 409. A model without `@cog.streaming` answers 406 and is then asked for its whole result.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any
from uuid import uuid4

import aiohttp
import msgspec

from adapters.cancelling import Cancellations
from adapters.cog_events import CogDecoder
from adapters.http import HttpUpstream, bearer, decode_json, error_body, error_for_response, read_whole
from adapters.replicate_input import input_schema, model_input
from adapters.shortcut import ChatBursts, ChatShortcut, shortened
from gateway.config import ProviderRow, Settings
from gateway.errors import GatewayError, RateLimited, UpstreamError
from gateway.events import Delta, Finished, FinishReason, TextDelta
from gateway.ports import Capabilities
from gateway.request import ChatRequest

DEFAULT_BASE_URL = "http://127.0.0.1:5000"
EVENT_STREAM = "text/event-stream"
BUSY = 409
DOES_NOT_STREAM = 406
SCHEMA_SECONDS = 5.0
CANCEL_PAUSES = (0.2, 0.5, 1.0, 2.0)
"""Seconds after each cancellation: time for the model to clean up before it is interrupted again."""


class Cog:
    """A `ChatProvider` over `PUT {base_url}/predictions/{id}`."""

    capabilities = Capabilities(tools=False, images=False, response_format=False)

    def __init__(self, row: ProviderRow, settings: Settings) -> None:
        self.name = row.name
        self._row = row
        self._upstream = HttpUpstream(row, row.base_url or DEFAULT_BASE_URL, bearer(row))
        self._cancellations = Cancellations(row)
        self._schema: Mapping[str, Any] | None = None

    def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | Finished, None]:
        return shortened(partial(self._reads, request))

    async def aclose(self) -> None:
        await self._cancellations.aclose()
        await self._upstream.aclose()

    async def _reads(self, request: ChatRequest, shortcut: ChatShortcut) -> ChatBursts:
        body = msgspec.json.encode({"input": model_input(request, await self._input_schema())})
        # The id is ours, so the prediction can be cancelled before the server has said a word.
        path = f"/predictions/{uuid4().hex}"
        decoder = CogDecoder(self._row)
        try:
            async with aclosing(self._texts(path, body, decoder, shortcut)) as bursts:
                async for burst in bursts:
                    yield burst
        except GatewayError as error:
            if isinstance(error.__cause__, aiohttp.ClientConnectorError):
                decoder.ended = True
            # The model may be at work already: only what never began may be tried again.
            error.retryable = error.retryable and decoder.ended
            raise
        finally:
            if not decoder.ended:
                self._cancellations.start(path, lambda: self._cancel(path))
        yield (Finished(FinishReason.STOP, decoder.usage),)

    async def _texts(self, path: str, body: bytes, decoder: CogDecoder, shortcut: ChatShortcut) -> ChatBursts:
        for accept in (EVENT_STREAM, "application/json"):
            headers = {"content-type": "application/json", "accept": accept}
            async with self._upstream.send("PUT", path, body=body, headers=headers, accept_errors=True) as response:
                if response.status == DOES_NOT_STREAM and accept == EVENT_STREAM:
                    continue
                if response.status != 200:
                    decoder.ended = True
                    raise await self._refusal(response)
                if response.content_type != EVENT_STREAM:
                    yield (TextDelta(decoder.whole(await read_whole(response, self._row))),)
                    return
                bursts = shortcut.read(
                    response, lambda piece: map(TextDelta, decoder.feed(piece)), lambda: decoder.ended
                )
                async with aclosing(bursts):
                    async for burst in bursts:
                        yield burst
                decoder.finish()
                return

    async def _refusal(self, response: aiohttp.ClientResponse) -> GatewayError:
        if response.status == BUSY:
            return RateLimited(f"Provider {self.name!r} is at work on all it can do at once.", provider=self.name)
        return error_for_response(self._row, response, await error_body(response))

    async def _cancel(self, path: str) -> None:
        """Cancel until the server knows the id no more (`NotFound`).

        It answers 200 to a cancellation that comes before its model has begun, and forgets it.
        """
        for pause in CANCEL_PAUSES:
            async with self._upstream.send("POST", f"{path}/cancel") as response:
                await read_whole(response, self._row)
            await asyncio.sleep(pause)
        raise UpstreamError("it was cancelled and goes on", provider=self.name)

    async def _input_schema(self) -> Mapping[str, Any] | None:
        """The model's input schema, read once; None when the server has none."""
        if self._schema is None:
            try:
                async with asyncio.timeout(SCHEMA_SECONDS), self._upstream.send("GET", "/openapi.json") as response:
                    self._schema = input_schema(decode_json(self._row, await read_whole(response, self._row)))
            except (GatewayError, TimeoutError):
                return None
        return self._schema
