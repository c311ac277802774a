"""The lines of a model container's answer, without I/O: bytes -> payloads, each one JSON text or `[DONE]`.

Containers write SSE with and without a space after `data:`, events parted by one line end or by two, or bare JSON
lines, and mix these forms, so a strict SSE reader would join or lose events.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gateway.errors import UpstreamError

LONGEST_LINE = 4 * 1024 * 1024
MOST_TRIES = 64
"""After so many `data:` lines that make no payload together, it is the empty line that ends one."""
DONE = b"[DONE]"


class LineReader:
    """`feed` bytes however they are cut, then `end`. Raises UpstreamError for a line longer than LONGEST_LINE."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The payloads that `data` completes. Lines end at LF only: U+2028 and other separators are text."""
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = bytes(self._rest) + lines[0]
            self._rest.clear()
        self._rest += rest
        self._check(len(self._rest))
        for line in lines:
            yield from self._line(line)

    def end(self) -> Iterator[bytes]:
        """The payload of a last line without a line end."""
        yield from self._line(bytes(self._rest))
        self._rest.clear()
        yield from self._flush()

    def _line(self, line: bytes) -> Iterator[bytes]:
        # A CR before the LF stays: JSON takes it for white space.
        if line.startswith(b"data:"):
            yield from self._data_line(line[5:].removeprefix(b" "))
        elif not line.strip():
            yield from self._flush()
        elif line.lstrip()[:1] in (b"{", b"["):
            yield from self._flush()
            yield line.strip()

    def _data_line(self, value: bytes) -> Iterator[bytes]:
        """A line that is a payload by itself is one at once; otherwise it goes on in the next `data:` line."""
        if not self._data and _whole(value):
            yield value
            return
        self._data.append(value)
        self._size += len(value)
        self._check(self._size)
        if len(self._data) <= MOST_TRIES and _whole(joined := b"\n".join(self._data)):
            self._data, self._size = [], 0
            yield joined

    def _flush(self) -> Iterator[bytes]:
        """What was begun and is no payload is still the caller's to refuse."""
        if self._data:
            joined = b"\n".join(self._data)
            self._data, self._size = [], 0
            if joined.strip():
                yield joined

    def _check(self, size: int) -> None:
        if size > LONGEST_LINE:
            raise UpstreamError(
                f"Provider {self._provider!r} sent a line longer than {LONGEST_LINE} bytes.", provider=self._provider
            )


def _whole(value: bytes) -> bool:
    if value.startswith(DONE):
        return True
    try:
        msgspec.json.decode(value, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
