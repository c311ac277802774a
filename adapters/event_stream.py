"""AWS event-stream frames, decoded without I/O by botocore: `application/vnd.amazon.eventstream` bytes -> frames.

Both checksums of a frame are verified. Memory is bounded: a frame longer than LONGEST_FRAME is refused by its first
four bytes, which also tells HTML or JSON under the wrong content type from a stream.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from botocore.eventstream import EventStreamBuffer, EventStreamMessage, ParserError

from gateway.errors import Truncated, UpstreamError

LONGEST_FRAME = 8 * 1024 * 1024
"""Bytes. SageMaker bounds a whole answer at 6 MiB and Bedrock's frames are far smaller."""
PRELUDE = 12
SHORTEST_FRAME = PRELUDE + 4


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

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that `data` completes, each before a fault in what follows it. Raises UpstreamError."""
        self._bytes += data
        while (message := self._next()) is not None:
            yield self._frame(message)

    def end(self) -> None:
        """Call at the body's end. Raises Truncated when it cut a frame."""
        if self._bytes:
            raise Truncated(f"Provider {self._provider!r} broke off inside a frame.", provider=self._provider)

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
                return self._taken(next(self._buffer), total)
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
