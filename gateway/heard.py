"""What of the spoken text was handed out as audio: all that a conversation may remember after an interruption."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.graphemes import last_boundary
from gateway.stops import SPACELESS

SECONDS_PER_CHARACTER = 0.07
"""The guess for a piece that is still being made when none before it is whole."""


@dataclass(slots=True)
class _Piece:
    """A piece of text and where its audio lies in the whole, in seconds; `end` None while it is being made."""

    text: str
    start: float
    end: float | None = None


class HeardText:
    """Kept by a speaker, read by a wire. `characters` counts what the voice was given."""

    def __init__(self) -> None:
        self.characters = 0
        self._pieces: list[_Piece] = []
        self._heard = 0.0

    @property
    def text(self) -> str:
        """The spoken text whose audio was handed out, up to the last word that was said as a whole."""
        return self.text_until(self._heard)

    def text_until(self, seconds: float) -> str:
        """The spoken text of the first `seconds` of audio, up to the last whole word: what a listener heard by then."""
        parts = [self._part(piece, seconds) for piece in self._pieces if piece.start < seconds]
        return " ".join(part for part in parts if part)

    def begin(self, text: str, seconds: float) -> None:
        """The voice is given `text`; its audio begins at `seconds`."""
        self.characters += len(text)
        self._pieces.append(_Piece(text, seconds))

    def end(self, seconds: float) -> None:
        """The last piece's audio is whole and ends at `seconds`."""
        self._pieces[-1].end = seconds

    def hear(self, seconds: float) -> None:
        """Audio up to `seconds` has been handed out."""
        self._heard = max(self._heard, seconds)

    def _part(self, piece: _Piece, seconds: float) -> str:
        length = self._length(piece)
        share = (seconds - piece.start) / length if length > 0 else 1.0
        place = int(len(piece.text) * share)
        # A millisecond of rounding must not cost the last word.
        if place >= len(piece.text) or (piece.end is not None and piece.end - seconds < 0.001):
            return piece.text
        return _whole_words(piece.text, place)

    def _length(self, piece: _Piece) -> float:
        if piece.end is not None:
            return piece.end - piece.start
        whole = [other for other in self._pieces if other.end is not None]
        characters = sum(len(other.text) for other in whole)
        seconds = sum((other.end or 0.0) - other.start for other in whole)
        pace = seconds / characters if characters and seconds else SECONDS_PER_CHARACTER
        return max(pace * len(piece.text), self._heard - piece.start)


def _whole_words(text: str, place: int) -> str:
    """`text` up to the last word that ends at or before `place`; scripts without spaces are cut at a character."""
    for space in range(place, 0, -1):
        if text[space].isspace():
            return text[:space].rstrip()
    return text[: last_boundary(text, place)] if place and SPACELESS.search(text, 0, place) else ""
