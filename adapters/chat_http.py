"""One chat stream over HTTP in the chat-completions dialect: the hot path of most providers.

The answer is server-sent events, JSON lines (LMI's default) or, from a server that does not stream, one JSON object.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import aiohttp
import msgspec

from adapters.chat_completions import ChatCompletionDecoder, stream_error
from adapters.http import LONGEST_BODY, HttpUpstream, read_start
from adapters.provider_events import completed_events
from adapters.shortcut import ChatBursts, ChatShortcut
from gateway.config import ProviderRow
from gateway.errors import UpstreamError
from gateway.events import Delta, Finished
from gateway.sse import BYTE_ORDER_MARK, SseDecoder

DRAIN_SECONDS = 0.05
"""How long the body's end is waited for after `[DONE]`, so that the connection can be used again."""


async def read_chat(
    upstream: HttpUpstream,
    path: str,
    body: dict[str, Any],
    headers: Mapping[str, str],
    shortcut: ChatShortcut,
) -> ChatBursts:
    """The events of `POST path` with `body`, those of each read of the answer together; the rest of them go past.

    Closing it closes the connection. Raises GatewayError; Truncated when the body ends without `[DONE]` or a finish
    reason.
    """
    decoder = ChatCompletionDecoder(upstream.row)
    head = {**headers, "content-type": "application/json", "accept": "text/event-stream"}
    async with upstream.send("POST", path, body=msgspec.json.encode(body), headers=head) as response:
        piece = await read_start(response)
        payloads = _reader(upstream.row, response.content_type, piece)
        reading = shortcut.read(
            response, lambda piece: _events(decoder, payloads.feed(piece)), lambda: decoder.done, first=piece
        )
        try:
            with reading as bursts:
                async for burst in bursts:
                    yield burst
            if not decoder.done:
                yield chain(_events(decoder, payloads.rest()), _finish(decoder))
        finally:
            if decoder.done:
                await _drain(response)


def _events(decoder: ChatCompletionDecoder, payloads: Iterable[bytes]) -> Iterator[Delta | Finished]:
    """The events of the payloads; the last one too when `[DONE]` is among them."""
    for payload in payloads:
        yield from decoder.feed(payload)
        if decoder.done:
            yield decoder.finish()
            return


def _finish(decoder: ChatCompletionDecoder) -> Iterator[Finished]:
    """The last event of a body that ended without `[DONE]`."""
    if not decoder.done:
        yield decoder.finish()


class EventPayloads:
    """The data of server-sent events."""

    def __init__(self, row: ProviderRow) -> None:
        self._row = row
        self._events = SseDecoder()

    def feed(self, piece: bytes) -> Iterable[bytes]:
        """The payloads that `piece` completes. Raises GatewayError for an `error` event and one without an end."""
        payloads = self._events.plain(piece)
        return self._named(piece) if payloads is None else filter(None, payloads)

    def _named(self, piece: bytes) -> Iterator[bytes]:
        for event in completed_events(self._row, self._events, piece):
            # It is an error also when its JSON has no `error` key.
            if event.event == "error":
                raise stream_error(self._row, _json_or_none(event.data))
            if event.data:
                yield event.data

    def rest(self) -> list[bytes]:
        """Nothing: an event that the body's end cuts off does not count."""
        return []


class JsonPayloads:
    """JSON lines or, with `lines` False, one JSON object, which may be written over many lines."""

    def __init__(self, row: ProviderRow, *, lines: bool) -> None:
        self._row = row
        self._lines = lines
        self._pending: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that `piece` completes. Raises UpstreamError when one has no end."""
        lines = piece.split(b"\n") if self._lines else [piece]
        self._pending.append(lines[0])
        self._size += len(lines[0])
        if self._size > LONGEST_BODY:
            raise UpstreamError(
                f"Provider {self._row.name!r} answered with more than {LONGEST_BODY} bytes.", provider=self._row.name
            )
        if len(lines) == 1:
            return []
        first = b"".join(self._pending)
        self._pending, self._size = [lines[-1]], len(lines[-1])
        return [line for line in (first, *lines[1:-1]) if line.strip()]

    def rest(self) -> list[bytes]:
        """What the end of the body completes."""
        line = b"".join(self._pending)
        return [line] if line.strip() else []


Payloads = EventPayloads | JsonPayloads


def _reader(row: ProviderRow, content_type: str, piece: bytes) -> Payloads:
    """By the content type, or by the first bytes for a server that gives none or a wrong one."""
    if content_type == "text/event-stream":
        return EventPayloads(row)
    start = piece.removeprefix(BYTE_ORDER_MARK).lstrip()
    if "html" in content_type or start.startswith(b"<"):
        raise UpstreamError(
            f"Provider {row.name!r} answered with a web page instead of a stream; check its base_url.",
            provider=row.name,
        )
    lines = "jsonl" in content_type or "ndjson" in content_type
    return JsonPayloads(row, lines=lines) if lines or start.startswith(b"{") else EventPayloads(row)


def _json_or_none(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None


async def _drain(response: aiohttp.ClientResponse) -> None:
    if response.content.at_eof():
        return
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            await response.content.readany()
    except (TimeoutError, aiohttp.ClientError):
        return
