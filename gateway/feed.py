"""Text that a client writes while it is already being spoken."""

from __future__ import annotations

from collections import deque

from gateway.checks import check_text
from gateway.errors import Conflict
from gateway.pieces import SpokenPieces
from gateway.waiting import Signal

MOST_WAITING = 8
"""Writes that may wait for the speaker before the next one waits."""


class SpeechFeed:
    """`append`, `flush` and `end` from the client's side; `speak_feed` reads it.

    Once its speech is over, whatever the reason, writing does nothing.
    """

    def __init__(self) -> None:
        self._writes: deque[str | None] = deque()
        self._signal = Signal()
        self._ended = False
        self._closed = False

    async def append(self, text: str) -> None:
        """Add text. Waits while the voice is far behind. Raises Conflict after `end`, InvalidRequest for bad text."""
        check_text(text, "text")
        await self._write(text)

    async def flush(self) -> None:
        """Speak what was appended so far, without waiting for its sentence to end. Raises Conflict after `end`."""
        await self._write(None)

    def end(self) -> None:
        """There is no more text; what is there will still be spoken."""
        self._ended = True
        self._signal.changed()

    def close(self) -> None:
        """Nobody reads any more: waiting writers go on at once."""
        self._closed = True
        self._writes.clear()
        self._signal.changed()

    async def say_to(self, pieces: SpokenPieces) -> None:
        """Pass everything on until the end."""
        while True:
            await self._signal.until(lambda: self._writes or self._ended)
            if not self._writes:
                break
            write = self._writes.popleft()
            self._signal.changed()
            if write is None:
                pieces.flush()
            else:
                await pieces.say(write)
        pieces.end()

    async def _write(self, write: str | None) -> None:
        if self._ended and not self._closed:
            raise Conflict("The text of this speech has ended; begin a new one.")
        await self._signal.until(lambda: self._closed or len(self._writes) < MOST_WAITING)
        if not self._closed:
            self._writes.append(write)
            self._signal.changed()
