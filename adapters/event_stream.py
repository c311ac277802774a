"""AWS event-stream frames, decoded without I/O by botocore: `application/vnd.amazon.eventstream` bytes -> frames.

Both checksums of a frame are verified. Memory is bounded: a frame longer than LONGEST_FRAME is refused by its first
four bytes, which also tells HTML or JSON under the wrong content type from a stream.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal
from zlib import crc32

from botocore.eventstream import EventStreamBuffer, EventStreamMessage, ParserError

from gateway.errors import Truncated, UpstreamError

LONGEST_FRAME = 8 * 1024 * 1024
"""Bytes. SageMaker bounds a whole answer at 6 MiB and Bedrock's frames are far smaller."""
PRELUDE = 12
SHORTEST_FRAME = PRELUDE + 4
MOST_NAMES, LONGEST_HEADERS = 16, 512
"""Of events whose headers are remembered, and their bytes; a stream has half a dozen of a hundred bytes."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame. `name` is the event's or exception's type or the error's code; `payload` JSON or raw bytes."""

    kind: Literal["event", "exception", "error"]
    name: str
    payload: bytes


class FrameDecoder:
    """`feed` bytes however they are cut, then `end`."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._bytes = bytearray()
        self._buffer: EventStreamBuffer | None = None
        self._names: dict[bytes, str] = {}

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that `data` completes, each before a fault in what follows it. Raises UpstreamError."""
        self._bytes += data
        while True:
            if (known := self._known()) is not None:
                yield known
            elif (message := self._next()) is not None:
                yield self._frame(message)
            else:
                return

    def end(self) -> None:
        """Call at the body's end. Raises Truncated when it cut a frame."""
        if self._bytes:
            raise Truncated(f"Provider {self._provider!r} broke off inside a frame.", provider=self._provider)

    def _known(self) -> Frame | None:
        """An event whose headers are those of one before, as a token's are; anything else is botocore's to read."""
        data = self._bytes
        if self._buffer is not None or len(data) < SHORTEST_FRAME:
            return None
        total, size = int.from_bytes(data[:4], "big"), int.from_bytes(data[4:8], "big")
        if not PRELUDE + size + 4 <= total <= min(len(data), LONGEST_FRAME):
            return None
        name = self._names.get(bytes(data[PRELUDE : PRELUDE + size]))
        if name is None or not (_is_sound(data, 8) and _is_sound(data, total - 4)):
            return None
        payload = bytes(data[PRELUDE + size : total - 4])
        del data[:total]
        return Frame("event", name, payload)

    def _next(self) -> EventStreamMessage | None:
        if len(self._bytes) < PRELUDE:
            return None
        total = int.from_bytes(self._bytes[:4], "big")
        if not SHORTEST_FRAME <= total <= LONGEST_FRAME:
            raise self._fault(f"what is not an AWS event stream, or a frame longer than {LONGEST_FRAME} bytes")
        try:
            if self._buffer is None and len(self._bytes) >= total:
                # The usual case, whole frames in one read: one step of botocore's reader instead of two.
                self._buffer = EventStreamBuffer()
                self._buffer.add_data(bytes(self._bytes[:total]))
                message = next(self._buffer)
                self._remember(message)
                return self._taken(message, total)
            if self._buffer is None:
                # The prelude's checksum is checked before its length is waited for.
                self._buffer = EventStreamBuffer()
                self._buffer.add_data(bytes(self._bytes[:PRELUDE]))
                next(self._buffer, None)
            if len(self._bytes) < total:
                return None
            self._buffer.add_data(bytes(self._bytes[PRELUDE:total]))
            return self._taken(next(self._buffer), total)
        except (ParserError, struct.error, UnicodeDecodeError, KeyError) as error:
            raise self._fault(f"a corrupted frame ({type(error).__name__})") from error

    def _remember(self, message: EventStreamMessage) -> None:
        size, headers = message.prelude.headers_length, message.headers
        if headers.get(":message-type") == "event" and size <= LONGEST_HEADERS and len(self._names) < MOST_NAMES:
            self._names[bytes(self._bytes[PRELUDE : PRELUDE + size])] = str(headers.get(":event-type", ""))

    def _taken(self, message: EventStreamMessage, size: int) -> EventStreamMessage:
        self._buffer = None
        del self._bytes[:size]
        return message

    def _frame(self, message: EventStreamMessage) -> Frame:
        headers, payload = message.headers, message.payload
        match headers.get(":message-type"):
            case "event":
                return Frame("event", str(headers.get(":event-type", "")), payload)
            case "exception":
                return Frame("exception", str(headers.get(":exception-type", "")), payload)
            case "error":
                text = str(headers.get(":error-message", "")).encode()
                return Frame("error", str(headers.get(":error-code", "")), text)
            case other:
                raise self._fault(f"a frame of the unknown kind {str(other)[:32]!r}")

    def _fault(self, what: str) -> UpstreamError:
        return UpstreamError(f"Provider {self._provider!r} sent {what}.", provider=self._provider)


def _is_sound(data: bytearray, end: int) -> bool:
    """Whether the checksum that stands at `end` is that of all before it."""
    with memoryview(data) as view:
        return crc32(view[:end]) == int.from_bytes(view[end : end + 4], "big")
