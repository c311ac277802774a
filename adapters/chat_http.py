"""One chat stream over HTTP in the chat-completions dialect: the hot path of most providers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import aiohttp
import msgspec

from adapters.chat_completions import ChatCompletionDecoder, stream_error
from adapters.http import HttpUpstream, read
from gateway.errors import UpstreamError
from gateway.events import Delta, Finished
from gateway.sse import EventTooLong, ServerSentEvent, SseDecoder

DRAIN_SECONDS = 0.05
"""How long the body's last bytes are waited for after `[DONE]`, so that the connection can be used again."""


async def stream_chat(
    upstream: HttpUpstream, path: str, body: dict[str, Any]
) -> AsyncGenerator[Delta | Finished, None]:
    """The events of `POST path` with `body`. Closing the generator closes the connection.

    Raises GatewayError; Truncated when the body ends without `[DONE]` or a finish reason.
    """
    row = upstream.row
    decoder = ChatCompletionDecoder(row)
    headers = {"content-type": "application/json", "accept": "text/event-stream"}
    async with upstream.send("POST", path, body=msgspec.json.encode(body), headers=headers) as response:
        if "json" in response.content_type:
            for delta in decoder.feed(await response.read()):
                yield delta
        else:
            _demand_stream(upstream, response)
            events = SseDecoder()
            async with aclosing(read(response, row)) as pieces:
                async for piece in pieces:
                    for event in _split(upstream, events, piece):
                        for delta in decoder.feed(_payload(upstream, event)):
                            yield delta
                    if decoder.done:
                        await _drain(response)
                        break
    yield decoder.finish()


def _split(upstream: HttpUpstream, events: SseDecoder, piece: bytes) -> list[ServerSentEvent]:
    try:
        return [event for event in events.feed(piece) if event.data]
    except EventTooLong as error:
        raise UpstreamError(f"Provider {upstream.row.name!r}: {error}.", provider=upstream.row.name) from error


def _payload(upstream: HttpUpstream, event: ServerSentEvent) -> bytes:
    """The event's data; an `error` event is one, also when its JSON has no `error` key."""
    if event.event != "error":
        return event.data
    try:
        value = msgspec.json.decode(event.data)
    except msgspec.DecodeError:
        value = None
    raise stream_error(upstream.row, value.get("error", value) if isinstance(value, dict) else value)


def _demand_stream(upstream: HttpUpstream, response: aiohttp.ClientResponse) -> None:
    if "html" in response.content_type:
        raise UpstreamError(
            f"Provider {upstream.row.name!r} answered with a web page instead of a stream; check its base_url.",
            provider=upstream.row.name,
        )


async def _drain(response: aiohttp.ClientResponse) -> None:
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            await response.content.readany()
    except (TimeoutError, aiohttp.ClientError):
        return
