"""Streams written down: one writer, many readers, replay from any point.

The first event is stored at once and the following ones in batches a few milliseconds long, so a store sees one write
per batch and a reader is never more than about 10 ms behind.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec.structs import asdict

from gateway.errors import Conflict, GatewayError, PayloadTooLarge
from gateway.events import (
    AudioDelta,
    AudioFormat,
    AudioStart,
    Encoding,
    Failed,
    Finished,
    FinishReason,
    ReasoningDelta,
    Started,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from gateway.ports import Store

BATCH_SECONDS = 0.004
MOVED = "log_moved"
"""The code of the Conflict that a store raises for a log which ends elsewhere than its writer thinks."""
MOST_PENDING_BYTES = 256 * 1024
"""What may wait for the store; then the provider is not read any further."""
MOST_BYTES = 64 * 1024 * 1024
"""The longest stream that is written down."""


class Recorder:
    """Writes one stream's deltas into the log `name`; the terminal event is written by `Recorder.close`.

    `after` is where the log ends now, None where that does not matter. Each write goes on where the last one ended, so
    that a store which has lost a part is noticed and no reader gets a text with a hole.
    """

    def __init__(self, store: Store, name: str, after: int | None = None) -> None:
        self._store = store
        self._name = name
        self._position = after
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._bytes = 0
        self._writing: asyncio.Task[None] | None = None

    async def add(self, event: StreamEvent) -> None:
        """Write `event` soon. Waits while the store is behind; raises what an earlier write raised."""
        entry = encode_event(event)
        self._bytes += len(entry)
        if self._bytes > MOST_BYTES:
            raise PayloadTooLarge(f"The answer is larger than the {MOST_BYTES} bytes that a prediction may have.")
        self._pending.append(entry)
        self._pending_bytes += len(entry)
        if self._writing is None or self._writing.done():
            await self._written()
            self._writing = asyncio.create_task(self._write())
        elif self._pending_bytes > MOST_PENDING_BYTES:
            await self._written()

    async def flush(self) -> None:
        """Wait until everything is stored, and is still there. Raises what a write raised, and Conflict."""
        await self._written()
        if self._pending:
            await self._store_pending()
        elif self._position is not None:
            page = await self._store.read(self._name, after=self._position, limit=1)
            if page.last != self._position:
                raise Conflict("The store has lost a part of this recording.", code=MOVED)

    async def close(self, terminal: Finished | Failed, *, ttl: float) -> None:
        """Write the last event; the log is forgotten `ttl` seconds later."""
        await self._store.append(self._name, [encode_event(terminal)], after=self._position, last=True, ttl=ttl)

    async def _written(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            await writing

    async def _write(self) -> None:
        while self._pending:
            await self._store_pending()
            await asyncio.sleep(BATCH_SECONDS)

    async def _store_pending(self) -> None:
        batch, self._pending, self._pending_bytes = self._pending, [], 0
        self._position = await self._store.append(self._name, batch, after=self._position)


async def replay(store: Store, name: str) -> AsyncGenerator[StreamEvent, None]:
    """The whole recording from its first event, then what comes, to its terminal event."""
    async with aclosing(store.follow(name)) as entries:
        async for _, entry in entries:
            yield decode_event(entry)


async def recorded(store: Store, name: str) -> list[StreamEvent]:
    """What has been recorded so far."""
    events: list[StreamEvent] = []
    after = 0
    while True:
        page = await store.read(name, after)
        events += [decode_event(entry) for _, entry in page.entries]
        if not page.entries or page.entries[-1][0] >= page.last:
            return events
        after = page.entries[-1][0]


def encode_event(event: StreamEvent) -> bytes:
    """One event as a log keeps it: a letter for its kind, then text, bytes or JSON."""
    match event:
        case TextDelta(text=text):
            return b"t" + text.encode("utf-8", "surrogatepass")
        case AudioDelta(data=data):
            return b"a" + data
        case ReasoningDelta():
            return b"r" + _json(asdict(event))
        case ToolCallStart():
            return b"c" + _json(asdict(event))
        case ToolCallDelta():
            return b"d" + _json(asdict(event))
        case AudioStart(format=format):
            return b"f" + _json(asdict(format))
        case Finished(reason=reason, usage=usage):
            return b"." + _json({"reason": reason, "usage": asdict(usage) if usage else None})
        case Failed(error=error):
            return b"!" + _json({"message": error.message, "status": error.status, "code": error.code})
        case Started():
            return b"s" + _json(asdict(event))


def decode_event(entry: bytes) -> StreamEvent:
    """The event that `encode_event` wrote. Raises ValueError for an entry that it did not."""
    kind, rest = entry[:1], entry[1:]
    if kind == b"t":
        return TextDelta(rest.decode("utf-8", "surrogatepass"))
    if kind == b"a":
        return AudioDelta(rest)
    value = json.loads(rest)
    match kind:
        case b"r":
            return ReasoningDelta(**value)
        case b"c":
            return ToolCallStart(**value)
        case b"d":
            return ToolCallDelta(**value)
        case b"f":
            return AudioStart(AudioFormat(Encoding(value["encoding"]), value["rate"], value["channels"]))
        case b".":
            usage = Usage(**value["usage"]) if value["usage"] else None
            return Finished(FinishReason(value["reason"]), usage)
        case b"!":
            return Failed(GatewayError(value["message"], status=value["status"], code=value["code"]))
        case b"s":
            return Started(**value)
        case _:
            raise ValueError(f"{kind!r} begins no recorded event")


def _json(value: object) -> bytes:
    return json.dumps(value).encode()
