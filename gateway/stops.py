"""Which marks end a sentence: the tables, and the verdict on one mark from what stands around it.

Stops of scripts that use no space (`。`, `।`, `؟`) are certain by themselves. `.`, `!`, `?` and `…` depend on the word
before and on the character after them, so that `3.14`, `Dr.`, `e.g.`, `a.m.`, `U.S.`, `main.py` and URLs stay whole.
"""

from __future__ import annotations

import re

from gateway.graphemes import extends

NEWLINES = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
WIDE_STOPS = "。！？；｡．।॥؟۔።၊။។։‼⁇⁈⁉"
STOPS = ".!?…"
WIDE_PAUSES = "，、：﹐﹑،؛"
PAUSES = ",;:—–"
CLOSERS = "」』）】〉》］｝〕〗〙＂＇”’»›)]}\"'"


def _any_of(characters: str) -> str:
    return f"[{re.escape(characters)}]"


STOP = re.compile(f"{_any_of(NEWLINES)}|{_any_of(WIDE_STOPS + STOPS)}+")
STOP_OR_PAUSE = re.compile(f"{STOP.pattern}|{_any_of(WIDE_PAUSES + PAUSES)}")
PAUSE = re.compile(f"{_any_of(WIDE_PAUSES)}|{_any_of(PAUSES)}(?=\\s)|—")

SPACELESS = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]")
WORD = re.compile(r"[^\W_]")
WORD_BEFORE = re.compile(r"[\w.&-]*\Z")
DOTTED = re.compile(r"(?:[^\W\d_]{1,3}\.)+[^\W\d_]{1,3}")
LONGEST_WORD = 40


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Lower case, without the last dot. A word in none of these ends a sentence.
NEVER_LAST = _words("dr mr mrs ms mx prof rev hon gen col sgt capt lt st mt messrs vs cf viz al eg ie")
BEFORE_NUMBER = _words("no nos nr fig figs vol p pp art sec ch eq ca jan feb mar apr jun jul aug sep sept oct nov dec")
BEFORE_SMALL_LETTER = _words("etc inc ltd co corp jr sr dept est approx ave blvd a.m p.m b.c a.d")

FIRST_CLAUSE_CHARACTERS, FIRST_CLAUSE_WORDS, FIRST_CLAUSE_SPACELESS = 25, 4, 10


def closed_end(text: str, end: int, *, in_quotes: bool) -> int:
    """The end of the closing quotes and brackets that follow a stop.

    A straight quote after a wide stop closes only when one is open (`in_quotes`): no space would tell.
    """
    is_wide = text[end - 1] in WIDE_STOPS
    while end < len(text) and text[end] in CLOSERS:
        if text[end] == '"' and is_wide and not in_quotes:
            break
        end += 1
    return end


def ends_sentence(text: str, start: int, stop_end: int, end: int) -> bool | None:
    """Whether the stop `text[start:stop_end]`, closed at `end`, ends a sentence; None while more text could tell."""
    stop = text[start:stop_end]
    if stop in NEWLINES:
        return True
    if end == len(text):
        return None
    after = text[end]
    if stop[-1] in WIDE_STOPS:
        return not extends(after) and not (stop == "．" and after.isdigit())
    if not after.isspace():
        is_glued = end == stop_end and stop in (".", "!", "?") and start > 0
        return is_glued and bool(SPACELESS.match(after) and SPACELESS.match(text[start - 1]))
    return _ends_before_space(text, start, stop, text[stop_end:end], text[end:].lstrip()[:1])


def ends_clause(text: str, start: int, end: int) -> bool | None:
    """Whether the pause mark `text[start:end]` may end the first piece; None while more text could tell."""
    if end == len(text):
        return None
    if not PAUSE.match(text, start) or extends(text[end]):
        return False
    if end >= FIRST_CLAUSE_CHARACTERS or len(text[:start].split()) >= FIRST_CLAUSE_WORDS:
        return True
    return end >= FIRST_CLAUSE_SPACELESS and SPACELESS.search(text, 0, start) is not None


def _ends_before_space(text: str, start: int, stop: str, closers: str, following: str) -> bool | None:
    """The verdict on a Latin stop that white space follows. `following` is the next character, empty when unknown."""
    is_quoted_or_open = bool(closers) or "…" in stop or ".." in stop
    if is_quoted_or_open:
        return None if not following else not following.islower()
    if stop != ".":
        return True
    match = WORD_BEFORE.search(text, max(0, start - LONGEST_WORD), start)
    word = match[0].lower() if match else ""
    if _is_list_number(word, start) or word in NEVER_LAST or _is_initial(word):
        return False
    if word in BEFORE_NUMBER:
        return None if not following else not following.isdigit()
    if word in BEFORE_SMALL_LETTER:
        return None if not following else following.isupper() or bool(SPACELESS.match(following))
    return not DOTTED.fullmatch(word)


def _is_list_number(word: str, start: int) -> bool:
    return word.isdigit() and start == len(word) <= 3


def _is_initial(word: str) -> bool:
    """`J. Smith`; but "I" is a word, and letters without case are whole words."""
    return len(word) == 1 and word != "i" and word.upper() != word
