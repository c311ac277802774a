"""Text as it is written -> pieces for a voice: cleaned, cut, and bounded in how much of it may wait."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator, Iterable

from gateway.sentences import DEFAULT_LIMIT, SentenceCutter
from gateway.spoken import PAUSED, SpokenText
from gateway.stops import WORD
from gateway.waiting import Signal

MOST_TEXT_AHEAD = 32_768
"""Characters that may wait for the voice: more than an ordinary answer has, so its text is never held up."""

LONGEST_SILENCE = 1.0
"""Seconds without new text after which a sentence without a stop is spoken as it stands."""

SLICE = 1024
EMPTY_BRACKETS = re.compile(r"\(\s*\)|\[\s*\]")
LOOSE_MARK = re.compile(r"\s+(?=[.,;:!?)\]])(?![.:]\w)")


class SpokenPieces:
    """`say`, `flush` and `end` on the writer's side, `is_ready`, `is_over` and `take` on the voice's.

    Every sentence is a piece, and a clock bounds waiting; `whole` fills each piece up to `limit` characters.
    """

    def __init__(self, limit: int, signal: Signal, *, whole: bool = False) -> None:
        self._limit = limit if whole else min(limit, DEFAULT_LIMIT)
        self._whole = whole
        self._signal = signal
        self._spoken = SpokenText()
        self._cutter = SentenceCutter(self._limit, first_clause=not whole)
        self._pieces: deque[str] = deque()
        self._filling = ""
        self._waiting = 0
        self._ended = False
        self._last_text = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_ready(self) -> bool:
        """Whether there is a piece to take."""
        return bool(self._pieces)

    @property
    def is_over(self) -> bool:
        """Whether no piece is left and none will come."""
        return self._ended and not self._pieces

    async def say(self, text: str) -> None:
        """Give the next text. Waits while the voice is far behind."""
        for start in range(0, len(text), SLICE):
            if start:
                await asyncio.sleep(0)
            self.add(text[start : start + SLICE])
            if self._waiting >= MOST_TEXT_AHEAD:
                self.stop_clock()
                await self._signal.until(lambda: self._waiting < MOST_TEXT_AHEAD)
            self.wind_clock()

    def add(self, text: str) -> None:
        """Give the next text, however far behind the voice is."""
        self._add(self._cutter.feed(self._spoken.feed(text)))

    def flush(self) -> None:
        """Speak what was said so far, without waiting for its sentence to end."""
        self._add(self._cutter.feed(self._spoken.flush()) + self._cutter.flush())
        self._push_filling()

    def end(self) -> None:
        """There is no more text."""
        self.flush()
        self._ended = True
        self.stop_clock()
        self._signal.changed()

    def wind_clock(self) -> None:
        """From now on the writer is silent, until it says more."""
        loop = asyncio.get_running_loop()
        self._last_text = loop.time()
        if self._timer is None and not self._cutter.is_empty:
            self._timer = loop.call_later(LONGEST_SILENCE, self._ring)

    def stop_clock(self) -> None:
        """From now on the writer is not silent but kept waiting: nothing is spoken on that account."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def take(self) -> str:
        """The next piece; `is_ready` must be true."""
        piece = self._pieces.popleft()
        self._waiting -= len(piece)
        self._signal.changed()
        return piece

    def _add(self, pieces: Iterable[str]) -> None:
        for piece in pieces:
            if not WORD.search(piece):
                continue
            words = _tidied(piece)
            if self._whole:
                self._fill(words)
            else:
                self._push(words)

    def _fill(self, words: str) -> None:
        if len(self._filling) + 1 + len(words) > self._limit:
            self._push_filling()
        if self._filling:
            self._filling += " " if self._filling[-1] in PAUSED else "\n"
        self._filling += words

    def _push_filling(self) -> None:
        filling, self._filling = self._filling, ""
        if filling:
            self._push(filling)

    def _push(self, piece: str) -> None:
        self._pieces.append(piece)
        self._waiting += len(piece)
        self._signal.changed()

    def _ring(self) -> None:
        """One timer serves many deltas: it looks how long the silence really is and waits for the rest."""
        self._timer = None
        if self._cutter.is_empty:
            return
        loop = asyncio.get_running_loop()
        left = self._last_text + LONGEST_SILENCE - loop.time()
        if left > 0.001:
            self._timer = loop.call_later(left, self._ring)
        else:
            self._add(self._cutter.flush())


async def whole_pieces(text: str, limit: int) -> AsyncGenerator[str, None]:
    """What can be spoken of a text that is all there, in as few pieces of at most `limit` characters as will do."""
    pieces = SpokenPieces(limit, Signal(), whole=True)
    for start in range(0, len(text), SLICE):
        if start:
            await asyncio.sleep(0)
        pieces.add(text[start : start + SLICE])
        while pieces.is_ready:
            yield pieces.take()
    pieces.end()
    while pieces.is_ready:
        yield pieces.take()


def _tidied(piece: str) -> str:
    """`piece` on one line, without the gaps that a left out URL or emoji has made."""
    return " ".join(LOOSE_MARK.sub("", EMPTY_BRACKETS.sub("", piece)).split())
