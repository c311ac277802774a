"""Where a text may be cut without breaking what a reader sees as one character.

The part of Unicode's grapheme rules (UAX 29) that matters for speech: combining marks, conjuncts, Hangul letters,
emoji sequences and flags.
"""

from __future__ import annotations

import unicodedata

JOINERS = "\u200c\u200d"
SKIN_TONES = range(0x1F3FB, 0x1F400)
TAGS = range(0xE0020, 0xE0080)
FLAG_LETTERS = range(0x1F1E6, 0x1F200)
HANGUL_LETTERS = range(0x1100, 0x1200)
SPACING_VOWELS = "\u0e33\u0eb3"
VIRAMA = 9


def last_boundary(text: str, limit: int) -> int:
    """The last place at or before `limit` where `text` may be cut; `limit` when everything before is one character."""
    place = limit
    while place > 0 and not _is_boundary(text, place):
        place -= 1
    return place or limit


def _is_boundary(text: str, place: int) -> bool:
    before, after = text[place - 1], text[place]
    if before == "\u200d" or extends(after) or unicodedata.combining(before) == VIRAMA:
        return False
    if ord(before) in HANGUL_LETTERS and ord(after) in HANGUL_LETTERS:
        return False
    if ord(after) in FLAG_LETTERS:
        return _flag_letters_before(text, place) % 2 == 0
    return (before, after) != ("\r", "\n")


def extends(character: str) -> bool:
    """Whether `character` belongs to the one before it."""
    code = ord(character)
    if code < 0x300:
        return False
    return (
        unicodedata.category(character) in ("Mn", "Mc", "Me")
        or character in JOINERS
        or character in SPACING_VOWELS
        or code in SKIN_TONES
        or code in TAGS
    )


def _flag_letters_before(text: str, place: int) -> int:
    start = place
    while start > 0 and ord(text[start - 1]) in FLAG_LETTERS:
        start -= 1
    return place - start
