"""Cuts text that arrives in pieces into sentences for a voice, each as early as it is certain.

A cut depends on the text alone, never on how it was split into deltas, and the work grows with the text's length only.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto

from gateway.graphemes import last_boundary
from gateway.stops import PAUSE, STOP, STOP_OR_PAUSE, STOPS, WIDE_STOPS, WORD, closed_end, ends_clause, ends_sentence

DEFAULT_LIMIT = 220
"""Characters. An embedded voice makes one chunk of a piece without a pause, and nothing is heard until it is made."""

LOOKAHEAD = 64
"""Characters beyond the limit that may still decide about a stop before it."""

SLICE = 1024


class _Open(Enum):
    UNDECIDED = auto()
    NO_END = auto()


class SentenceCutter:
    """`feed` gives the pieces that are certain now, `flush` the rest. No piece is longer than `limit` characters.

    The joined pieces are the text but for white space. A piece may hold no word at all ("...").
    With `first_clause`, the first piece may end at a comma, so that a voice can begin early.
    """

    def __init__(self, limit: int = DEFAULT_LIMIT, *, first_clause: bool = True) -> None:
        self._limit = limit
        self._horizon = limit + LOOKAHEAD
        self._text = ""
        self._seen = 0
        self._in_quotes = False
        self._marks = STOP_OR_PAUSE if first_clause else STOP

    @property
    def is_empty(self) -> bool:
        return not self._text

    def feed(self, delta: str) -> list[str]:
        """The pieces that `delta` completes."""
        size = len(self._text)
        if size and self._seen == size and size + len(delta) < self._limit and not self._marks.search(delta):
            self._text += delta
            self._seen = len(self._text)
            return []
        pieces: list[str] = []
        for start in range(0, len(delta), SLICE):
            self._text += delta[start : start + SLICE]
            pieces += self._ready(final=False)
        return pieces

    def flush(self) -> list[str]:
        """All that is left, as at the end of the text."""
        pieces = list(self._ready(final=True))
        rest = self._take(len(self._text))
        return [*pieces, rest] if rest else pieces

    def _ready(self, *, final: bool) -> Iterator[str]:
        while True:
            if self._seen == 0:
                self._text = self._text.lstrip()
            is_whole = final and len(self._text) <= self._horizon
            end = self._sentence_end(self._text[: self._horizon], final=is_whole)
            if end is _Open.UNDECIDED and len(self._text) < self._horizon:
                return
            if isinstance(end, _Open):
                if len(self._text) <= self._limit:
                    return
                end = self._length_end()
            yield self._take(end)

    def _take(self, end: int) -> str:
        piece, self._text = self._text[:end].rstrip(), self._text[end:]
        self._seen = 0
        if piece:
            self._marks = STOP
            self._in_quotes ^= piece.count('"') % 2 == 1
        return piece

    def _sentence_end(self, text: str, *, final: bool) -> int | _Open:
        """The end of the first sentence of `text`. Marks that end nothing are not looked at again."""
        while (mark := self._marks.search(text, self._seen)) is not None and mark.start() < self._limit:
            is_open = mark.end() == len(text) and text[-1] in STOPS + WIDE_STOPS
            verdict, end = (None, 0) if is_open else self._verdict(text, mark.start(), mark.end())
            if verdict is None and not final:
                return _Open.UNDECIDED
            if verdict and WORD.search(text, 0, end):
                return min(end, self._limit)
            self._seen = mark.end()
        if mark is None:
            self._seen = len(text)
        return _Open.NO_END

    def _verdict(self, text: str, start: int, stop_end: int) -> tuple[bool | None, int]:
        if not STOP.match(text, start):
            return ends_clause(text, start, stop_end), stop_end
        in_quotes = self._in_quotes ^ (text.count('"', 0, start) % 2 == 1)
        end = closed_end(text, stop_end, in_quotes=in_quotes)
        return ends_sentence(text, start, stop_end, end), end

    def _length_end(self) -> int:
        """Where to cut text that has no stop in time: at a pause, at white space, at worst between two characters."""
        pauses = [match.end() for match in PAUSE.finditer(self._text, self._limit // 3, self._limit + 1)]
        if pauses and pauses[-1] > self._limit:
            pauses.pop()
        if pauses:
            return pauses[-1]
        for place in range(self._limit, 0, -1):
            if self._text[place].isspace():
                return place
        return last_boundary(self._text, self._limit)
