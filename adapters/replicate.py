"""Chat with models on Replicate. Row: base_url (default https://api.replicate.com), api_key_env.

A model's upstream id is `owner/name` (official models), `owner/name:version`, a bare version id (64 hex characters) or
`deployments/owner/name`. The key goes to the base_url's own origin and, if that is one of replicate.com's, to other
https hosts of replicate.com; a stream anywhere else is not opened, its prediction is polled at the base_url instead.
A prediction whose reader leaves is cancelled: closing its stream alone would stop neither the run nor its cost.
A model that is cold takes minutes to begin: give its row a `first_event_seconds` that is long enough.
The vendor names no reason but cancelled and error, so a whole answer's reason is always `stop`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

import aiohttp

from adapters.cancelling import Cancellations
from adapters.http import HttpUpstream, bearer, decode_json, read_whole
from adapters.replicate_events import ENDED, PredictionDecoder
from adapters.replicate_input import input_schema, model_input, usage_of
from adapters.replicate_target import Target, find_target, trusted
from adapters.shortcut import ChatBursts, ChatShortcut, shortened
from gateway.config import ProviderRow, Settings
from gateway.errors import (
    GatewayError,
    InvalidRequest,
    NotFound,
    RateLimited,
    Truncated,
    UpstreamError,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from gateway.events import Delta, Finished, FinishReason, TextDelta
from gateway.ports import Capabilities
from gateway.request import ChatRequest

DEFAULT_BASE_URL = "https://api.replicate.com"
PREDICTION_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")

RECONNECTS = 3
"""Streams opened again in a row without any new text between."""
POLL_SECONDS = 0.5
SCHEMA_SECONDS = 5.0
USAGE_SECONDS = 1.0


class Replicate:
    """A `ChatProvider` over Replicate's predictions and their event streams."""

    capabilities = Capabilities(tools=False, images=False, response_format=False)

    def __init__(self, row: ProviderRow, settings: Settings) -> None:
        self.name = row.name
        self._row = row
        base_url = (row.base_url or DEFAULT_BASE_URL).rstrip("/").removesuffix("/v1")
        self._upstream = HttpUpstream(row, base_url, bearer(row))
        self._cancellations = Cancellations(row)
        self._creating: set[asyncio.Task[dict[str, Any]]] = set()
        self._schemas: dict[str, Mapping[str, Any]] = {}

    def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | Finished, None]:
        return shortened(partial(self._reads, request))

    async def aclose(self) -> None:
        await self._cancellations.aclose()
        for creating in self._creating:
            creating.cancel()
        await asyncio.gather(*self._creating, return_exceptions=True)
        await self._upstream.aclose()

    async def _reads(self, request: ChatRequest, shortcut: ChatShortcut) -> ChatBursts:
        target = find_target(request.model)
        values = model_input(request, await self._schema(target))
        body = {"input": values, "stream": True} | ({"version": target.version} if target.version else {})
        prediction = await self._create(target, body)
        decoder = PredictionDecoder(self._row)
        try:
            async with aclosing(self._texts(prediction, decoder, shortcut)) as bursts:
                async for burst in bursts:
                    yield burst
        except GatewayError as error:
            # The prediction has been paid for: asking again would make a second one.
            error.retryable = False
            raise
        finally:
            if not decoder.ended:
                self._cancellations.start(prediction["id"], lambda: self._cancel(prediction["id"]))
        yield (Finished(FinishReason.STOP, usage_of(await self._metrics(prediction["id"]))),)

    async def _create(self, target: Target, body: Mapping[str, Any]) -> dict[str, Any]:
        """The new prediction. A reader that leaves meanwhile does not stop the request: its answer has the id that
        cancelling needs."""
        creating = asyncio.create_task(self._post_prediction(target, body))
        self._creating.add(creating)
        creating.add_done_callback(self._creating.discard)
        try:
            return await asyncio.shield(creating)
        except asyncio.CancelledError:
            self._cancellations.start("being created", lambda: self._cancel_created(creating))
            raise

    async def _cancel_created(self, creating: asyncio.Task[dict[str, Any]]) -> None:
        try:
            prediction = await asyncio.shield(creating)
        except GatewayError:
            return
        await self._cancel(prediction["id"])

    async def _post_prediction(self, target: Target, body: Mapping[str, Any]) -> dict[str, Any]:
        try:
            prediction = await self._upstream.post_json(target.create_path, body)
        except GatewayError as error:
            refused = isinstance(error, RateLimited) or isinstance(error.__cause__, aiohttp.ClientConnectorError)
            error.retryable = error.retryable and refused
            if isinstance(error, InvalidRequest):
                # The model may have a new version with other fields.
                self._schemas.pop(target.schema_path or "", None)
            raise
        if not isinstance(prediction, dict) or not PREDICTION_ID.fullmatch(str(prediction.get("id"))):
            raise UpstreamError(
                f"Provider {self.name!r} answered with something that is not a prediction; check its base_url.",
                provider=self.name,
            )
        return prediction

    def _texts(self, prediction: dict[str, Any], decoder: PredictionDecoder, shortcut: ChatShortcut) -> ChatBursts:
        stream_url = self._stream_url(prediction)
        if stream_url is None or prediction.get("status") in ENDED:
            return self._polled(prediction, decoder)
        return self._followed(stream_url, prediction["id"], decoder, shortcut)

    async def _polled(self, prediction: dict[str, Any], decoder: PredictionDecoder) -> ChatBursts:
        """The growth of the prediction's output until it ends."""
        while True:
            if text := decoder.catch_up(prediction):
                yield (TextDelta(text),)
            if decoder.ended:
                return
            await asyncio.sleep(POLL_SECONDS)
            prediction = await self._prediction(prediction["id"])

    async def _followed(
        self, url: str, prediction_id: str, decoder: PredictionDecoder, shortcut: ChatShortcut
    ) -> ChatBursts:
        """The event stream until `done`, opened again where it was cut while the prediction runs."""
        while True:
            async with aclosing(self._connection(url, decoder, shortcut)) as bursts:
                async for burst in bursts:
                    yield burst
            if decoder.ended:
                return
            decoder.cut()
            try:
                prediction = await self._prediction(prediction_id)
            except GatewayError as error:
                raise decoder.truncated() from error
            if prediction.get("status") in ENDED:
                if text := decoder.catch_up(prediction):
                    yield (TextDelta(text),)
                return
            if decoder.timed_out:
                await asyncio.sleep(POLL_SECONDS)
            if not decoder.resumable or decoder.cuts_in_a_row > RECONNECTS:
                raise decoder.truncated()

    async def _connection(self, url: str, decoder: PredictionDecoder, shortcut: ChatShortcut) -> ChatBursts:
        """The text of one connection to the event stream; it ends silently when the connection does."""
        headers = {"accept": "text/event-stream", "cache-control": "no-store", "accept-encoding": "identity"}
        if decoder.last_id is not None:
            headers["last-event-id"] = decoder.last_id
        try:
            async with self._upstream.send("GET", url, headers=headers) as response:
                if response.content_type != "text/event-stream":
                    raise UpstreamError(
                        f"Provider {self.name!r} answered with {response.content_type} instead of an event stream.",
                        provider=self.name,
                    )
                bursts = shortcut.read(
                    response, lambda piece: map(TextDelta, decoder.feed(piece)), lambda: decoder.ended
                )
                async with aclosing(bursts):
                    async for burst in bursts:
                        yield burst
        except (Truncated, UpstreamUnavailable, UpstreamTimeout, NotFound):
            return

    async def _prediction(self, prediction_id: str) -> dict[str, Any]:
        async with self._upstream.send("GET", f"/v1/predictions/{prediction_id}") as response:
            prediction = decode_json(self._row, await read_whole(response, self._row))
        if not isinstance(prediction, dict):
            raise UpstreamError(f"Provider {self.name!r} answered with something that is not a prediction.")
        return {**prediction, "id": prediction_id}

    async def _cancel(self, prediction_id: str) -> None:
        # Built from the base_url and not from `urls.cancel`, which may name any host.
        async with self._upstream.send("POST", f"/v1/predictions/{prediction_id}/cancel") as response:
            await read_whole(response, self._row)

    async def _metrics(self, prediction_id: str) -> object:
        try:
            async with asyncio.timeout(USAGE_SECONDS):
                return (await self._prediction(prediction_id)).get("metrics")
        except (GatewayError, TimeoutError):
            return None

    async def _schema(self, target: Target) -> Mapping[str, Any] | None:
        """The model's input schema, read once; None when it has none or does not tell."""
        path = target.schema_path
        if path is None or path in self._schemas:
            return self._schemas.get(path or "")
        try:
            async with asyncio.timeout(SCHEMA_SECONDS), self._upstream.send("GET", path) as response:
                model = decode_json(self._row, await read_whole(response, self._row))
        except (GatewayError, TimeoutError):
            return None
        version = model.get("latest_version", model) if isinstance(model, dict) else None
        schema = input_schema(version.get("openapi_schema") if isinstance(version, dict) else None)
        if schema is not None:
            self._schemas[path] = schema
        return schema

    def _stream_url(self, prediction: dict[str, Any]) -> str | None:
        urls = prediction.get("urls")
        url = urls.get("stream") if isinstance(urls, dict) else None
        return url if isinstance(url, str) and trusted(url, self._upstream.base_url) else None
