"""Server-sent events, encoded and incrementally decoded, without I/O. Wires and adapters both use it.

Follows the WHATWG HTML standard, section 9.2 (lines end in LF, CR or CRLF; a blank line dispatches an event).
"""

from __future__ import annotations

from dataclasses import dataclass

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
DEFAULT_LIMIT = 4 * 1024 * 1024


class EventTooLong(ValueError):
    """One event is larger than the decoder's limit; the stream cannot be read further."""


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event. `data` is undecoded UTF-8, its lines joined by LF; `id` is the last id seen on the stream."""

    data: bytes
    event: str = "message"
    id: str | None = None

    @property
    def text(self) -> str:
        """`data` as text; broken UTF-8 becomes U+FFFD, as in a browser."""
        return self.data.decode("utf-8", "replace")


def encode_sse(data: str | bytes, *, event: str | None = None, id: str | None = None) -> bytes:
    """One event as bytes. Every line of `data`, whatever its line ends, becomes a `data:` line.

    `event` and `id` must not hold line breaks (they are ours, never a caller's).
    """
    raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
    if b"\r" in raw:
        raw = raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    head = (f"event: {event}\n" if event else "") + (f"id: {id}\n" if id else "")
    return head.encode() + b"data: " + raw.replace(b"\n", b"\ndata: ") + b"\n\n"


class LineFeeds:
    """A text in pieces, with LF for every line end, also for a CRLF that was cut in two: all that `data:` can carry."""

    def __init__(self) -> None:
        self._after_cr = False

    def feed(self, text: str) -> str:
        """The next piece; nothing when it only ends a line that has ended."""
        if self._after_cr and text.startswith("\n"):
            text = text[1:]
            self._after_cr = False
        if text:
            self._after_cr = text.endswith("\r")
        return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


class SseDecoder:
    """Bytes in, whole events out, however the bytes are cut. Memory is bounded by `limit` bytes per event."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self._limit = limit
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._data: list[bytes] = []
        self._data_size = 0
        self._event = ""
        self._id: str | None = None
        self._after_cr = False
        self._started = False
        self.comment = b""
        """The last comment line, without its colon: some servers say there why they end a stream."""

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """The events that `data` completes. Raises EventTooLong."""
        if (payloads := self.plain(data)) is not None:
            return [ServerSentEvent(payload, "message", self._id) for payload in payloads]
        lines = self._lines(data)
        events: list[ServerSentEvent] = []
        for line in lines:
            if line:
                self._field(line)
            elif self._data:
                events.append(ServerSentEvent(b"\n".join(self._data), self._event or "message", self._id))
                self._data, self._data_size, self._event = [], 0, ""
            else:
                self._event = ""
        return events

    @property
    def pending(self) -> bool:
        """Whether an event was begun and not ended: at the end of the body this is a truncated one."""
        return bool(self._data or self._pending)

    def plain(self, data: bytes) -> list[bytes] | None:
        """The payloads of events of one line and no name, which is how most streams come; None for anything else.

        What is None has not been taken, and is for `feed`.
        """
        if not (data.startswith(b"data: ") and data.endswith(b"\n\n")) or self._data or self._pending:
            return None
        payloads = data[6:-2].split(b"\n\ndata: ")
        if data.count(b"\n") != 2 * len(payloads) or b"\r" in data or len(data) > self._limit:
            return None
        if self._event or self._after_cr:
            return None
        self._started = True
        return payloads

    def _lines(self, data: bytes) -> list[bytes]:
        if self._after_cr and data:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if b"\n" not in data:
            self._hold(data)
            return []
        lines = data.split(b"\n")
        if self._pending:
            lines[0] = b"".join(self._pending) + lines[0]
            self._pending, self._pending_size = [], 0
        self._hold(lines.pop())
        if not self._started:
            self._started = True
            lines[0] = lines[0].removeprefix(BYTE_ORDER_MARK)
        return lines

    def _hold(self, rest: bytes) -> None:
        if not rest:
            return
        self._pending.append(rest)
        self._pending_size += len(rest)
        self._check(self._pending_size)

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise EventTooLong(f"a server-sent event is longer than {self._limit} bytes")

    def _field(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            value = line[6:] if line.startswith(b"data: ") else line[5:]
            self._data.append(value)
            # One more for the line break, so that lines without content cannot pile up either.
            self._data_size += len(value) + 1
            self._check(self._data_size)
        elif line.startswith(b"event:"):
            self._event = line[6:].removeprefix(b" ").decode("utf-8", "replace")
        elif line.startswith(b"id:") and b"\0" not in line:
            self._id = line[3:].removeprefix(b" ").decode("utf-8", "replace")
        elif line.startswith(b":"):
            self.comment = line[1:]
        elif line == b"data":
            self._data.append(b"")
