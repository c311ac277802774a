"""What the embedded voice can read aloud: English, that is Latin letters, digits and the usual signs.

Its engine drops what it does not know without a word, so text is made into what it knows or refused. Emoji and stray
signs may be dropped; a letter never is.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from gateway.errors import Unsupported

SPOKEN_AS_THEY_ARE = frozenset("ßàáâãäåæçèéêëìíîïðñòóôõöøùúûüýþÿÆØÞĐđŁłŒœıªºµπ")
"""Letters that the engine knows; its lexicon has `naïve` but not `naive`."""

LONG_NUMBER = re.compile(r"\d[\d,]{15,}")
"""The engine has no words for numbers this long and fails at 67 digits; they are read digit by digit."""

WORST_CUT = 40
"""Characters. A piece is not cut at a mark that comes earlier than this."""


def speakable(text: str) -> str:
    """`text` in the letters that the engine knows. Raises Unsupported when it holds others, or nothing to say."""
    plain = "".join(_plain(character) for character in unicodedata.normalize("NFC", text))
    if not any(character.isalnum() for character in plain):
        raise Unsupported(
            "There is nothing here that the embedded voice can speak; it reads English: Latin letters and digits.",
            param="text",
        )
    return LONG_NUMBER.sub(lambda number: " ".join(number[0].replace(",", "")), plain)


def pieces(sentence: str, limit: int) -> Iterator[str]:
    """`sentence` in pieces of at most `limit` characters, cut after a mark, else at a space, else anywhere."""
    rest = sentence.strip()
    while len(rest) > limit:
        marks = (rest.rfind(mark, WORST_CUT, limit - 1) for mark in (", ", "; ", ": ", " "))
        end = next((mark + 1 for mark in marks if mark >= 0), limit)
        yield rest[:end].strip()
        rest = rest[end:].strip()
    if rest:
        yield rest


def _plain(character: str) -> str:
    if character.isascii() or character in SPOKEN_AS_THEY_ARE:
        return character
    category = unicodedata.category(character)
    if category == "Nd":
        return str(unicodedata.decimal(character))
    if category[0] != "L" and category != "Nl":
        return character
    decomposed = unicodedata.normalize("NFKD", character)
    base = "".join(part for part in decomposed if not unicodedata.combining(part))
    if base.isascii() or base in SPOKEN_AS_THEY_ARE:
        return base
    raise Unsupported(
        f"The embedded voice reads English only and cannot speak the {_script(character)} letters in this text; "
        "choose another speech model for it.",
        param="text",
    )


def _script(character: str) -> str:
    """`Hangul` for `HANGUL SYLLABLE AN`; acronyms such as CJK stay as they are."""
    word = unicodedata.name(character, "unknown").split(" ")[0].split("-")[0]
    return word if word == "CJK" else word.capitalize()
