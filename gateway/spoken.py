"""What of a written answer is said aloud: text without Markdown, HTML, links' targets, code blocks, tables and emoji.

`SpokenText` takes deltas; its output depends on the text alone, never on how it was split. Marks that may still become
something else are held back for a bounded number of characters. Headings and list items end in a pause mark.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from gateway import markup

LONGEST_LINK, LONGEST_TAG, LONGEST_FENCE_LINE = 300, 300, 200
LONGEST_TRAIL, LONGEST_TICKS = 8, 8
SLICE = 1024
PAUSED = frozenset(".!?…,;:。！？；：，、।॥؟۔")
BEFORE_IMAGE = frozenset(" \t\n([|*_>")

Step = tuple[int, str] | None
"""How many characters are used up, and what is said for them; None while more text is needed."""


class Place(Enum):
    """What the next character is part of."""

    LINE_START = auto()
    TEXT = auto()
    URL = auto()
    LINK_TARGET = auto()
    LEFT_OUT_LINE = auto()
    FENCE = auto()


class SpokenText:
    """`feed` gives what can be said of the text so far, `flush` the rest with open marks taken as they stand."""

    def __init__(self, place: Place = Place.LINE_START) -> None:
        self._place = place
        self._held = ""
        self._before = "\n"
        self._said = ""
        self._is_item = False
        self._in_code = False
        self._opened = False
        self._after_rule = ""
        self._parentheses = 0
        self._fence = ""
        self._in_fenced_line = False
        self._steps: dict[Place, Callable[[str, bool], Step]] = {
            Place.LINE_START: self._line_start,
            Place.TEXT: self._text,
            Place.URL: self._url,
            Place.LINK_TARGET: self._link_target,
            Place.LEFT_OUT_LINE: self._left_out_line,
            Place.FENCE: self._fenced,
        }
        self._marks: dict[str, Callable[[str, bool], Step]] = {
            "\n": self._newline,
            "\r": _left_out,
            "*": self._emphasis,
            "_": self._emphasis,
            "~": self._tildes,
            "`": self._ticks,
            "[": self._link,
            "!": self._link,
            "<": self._tag,
            "\\": self._escape,
        }

    def feed(self, delta: str) -> str:
        """What `delta` lets be said."""
        if delta and self._place is Place.TEXT and not self._held and not markup.MARK.search(delta):
            self._before = delta[-1]
            self._note(delta)
            return delta
        said = []
        for start in range(0, len(delta), SLICE):
            self._held += delta[start : start + SLICE]
            said.append(self._drain(final=False))
        return "".join(said)

    def flush(self) -> str:
        """What is held back, said as it stands."""
        return self._drain(final=True)

    def _drain(self, *, final: bool) -> str:
        said = []
        while self._held:
            step = self._steps[self._place](self._held, final)
            if step is None:
                break
            used, words = step
            if used:
                self._before, self._held = self._held[used - 1], self._held[used:]
            if words:
                self._note(words)
                said.append(words)
        return "".join(said)

    def _note(self, words: str) -> None:
        seen = words.rstrip()
        if words[-1] == "\n":
            self._said = ""
        elif seen:
            self._said = seen[-1]

    def _line_start(self, text: str, final: bool) -> Step:
        if self._after_rule and text[0] == self._after_rule:
            return 1, ""
        self._after_rule = ""
        if indent := markup.INDENT.match(text):
            return indent.end(), ""
        if text[0] == "|":
            self._place = Place.LEFT_OUT_LINE
            return 1, ""
        if fence := markup.FENCE.match(text[:LONGEST_FENCE_LINE]):
            self._place, self._fence = Place.FENCE, fence[1] or fence[2]
            return fence.end(), ""
        if mark := markup.HEADING.match(text) or markup.ITEM.match(text):
            self._is_item = True
            return mark.end(), ""
        if rule := markup.RULE.match(text):
            self._after_rule = text[0]
            return rule.end(), ""
        if self._is_item and (task := markup.TASK.match(text)):
            return task.end(), ""
        may_be_fence = len(text) < LONGEST_FENCE_LINE and markup.FENCE_OPEN.match(text)
        if not final and (may_be_fence or markup.LINE_OPEN.match(text)):
            return None
        self._place = Place.TEXT
        return 0, ""

    def _text(self, text: str, final: bool) -> Step:
        pattern = markup.MARK_IN_CODE if self._in_code else markup.MARK
        mark = pattern.search(text)
        if mark is None:
            return len(text), text
        if mark.start():
            return mark.start(), text[: mark.start()]
        special = self._marks.get(text[0])
        if special is not None:
            return special(text, final)
        return self._emoji(text, final) if markup.EMOJI.match(text) else self._url_start(text, final)

    def _newline(self, text: str, final: bool) -> Step:
        pause = "." if self._is_item and self._said not in PAUSED else ""
        end = f"{pause}\n" if self._said else ""
        self._place, self._is_item = Place.LINE_START, False
        self._in_code = self._opened = False
        return 1, end

    def _emphasis(self, text: str, final: bool) -> Step:
        mark = text[0]
        if self._before == mark:
            return 1, ""
        size = len(text) - len(text.lstrip(mark))
        if size >= 3:
            return size, ""
        if size == len(text) and not final:
            return None
        after = text[size : size + 1] or " "
        before = self._before
        if before.isspace() and after.isspace():
            return size, text[:size]
        if _is_inside_word(mark, before, after) and not (mark == "*" and self._opened):
            return size, text[:size]
        self._opened = not before.isalnum() and not after.isspace()
        return size, ""

    def _tildes(self, text: str, final: bool) -> Step:
        if self._before == "~":
            return 1, ""
        if text == "~" and not final:
            return None
        return (2, "") if text.startswith("~~") else (1, "~")

    def _ticks(self, text: str, final: bool) -> Step:
        if self._before == "`":
            return 1, ""
        size = len(text) - len(text.lstrip("`"))
        if size == len(text) and size < LONGEST_TICKS and not final:
            return None
        self._in_code = not self._in_code
        return size, ""

    def _link(self, text: str, final: bool) -> Step:
        if text[0] == "!" and self._before not in BEFORE_IMAGE:
            return 1, "!"
        near = text[:LONGEST_LINK]
        if footnote := markup.FOOTNOTE.match(near):
            return footnote.end(), ""
        if link := markup.LINK.match(near):
            self._place, self._parentheses = Place.LINK_TARGET, 1
            return link.end(), spoken(link[1], Place.TEXT)
        if not final and len(text) < LONGEST_LINK and markup.LINK_OPEN.match(near):
            return None
        return 1, text[0]

    def _link_target(self, text: str, final: bool) -> Step:
        for place, character in enumerate(text):
            if character == "\n":
                self._place = Place.TEXT
                return place, ""
            self._parentheses += (character == "(") - (character == ")")
            if self._parentheses == 0:
                self._place = Place.TEXT
                return place + 1, ""
        return len(text), ""

    def _tag(self, text: str, final: bool) -> Step:
        near = text[:LONGEST_TAG]
        if tag := markup.TAG.match(near):
            return tag.end(), "\n" if markup.BREAK_TAG.match(near) and self._said else ""
        if not final and len(text) < LONGEST_TAG and markup.TAG_OPEN.match(near):
            return None
        return 1, "<"

    def _escape(self, text: str, final: bool) -> Step:
        if len(text) == 1:
            return (1, "\\") if final else None
        if text[1] in markup.ESCAPABLE:
            return 2, text[1]
        return 1, "" if text[1] == "\n" else "\\"

    def _emoji(self, text: str, final: bool) -> Step:
        if text[0] == markup.ZERO_WIDTH_JOINER and not markup.EMOJI.match(self._before):
            return 1, text[0]
        return 1, ""

    def _url_start(self, text: str, final: bool) -> Step:
        is_in_word = self._before.isascii() and self._before.isalnum()
        if is_in_word:
            return 1, text[0]
        if url := markup.URL.match(text):
            self._place = Place.URL
            return url.end(), ""
        return (1, text[0]) if final else None

    def _url(self, text: str, final: bool) -> Step:
        body = markup.URL_BODY.match(text)
        end = body.end() if body else 0
        trail = markup.URL_TRAIL.search(text, 0, end)
        kept = len(trail[0]) if trail and len(trail[0]) <= LONGEST_TRAIL else 0
        if end < len(text) or final:
            self._place = Place.TEXT
            return end - kept, ""
        return (end - kept, "") if end > kept else None

    def _left_out_line(self, text: str, final: bool) -> Step:
        end = text.find("\n")
        if end < 0:
            return len(text), ""
        self._place = Place.TEXT
        return end, ""

    def _fenced(self, text: str, final: bool) -> Step:
        line, newline, _ = text.partition("\n")
        if self._in_fenced_line:
            self._in_fenced_line = not newline
            return len(line) + len(newline), ""
        mark = line.strip(" \t\r>")
        may_close = not mark.strip(self._fence[0])
        if may_close and not newline and not final and len(line) < LONGEST_FENCE_LINE:
            return None
        if may_close and len(mark) >= len(self._fence):
            self._place = Place.TEXT
            return len(line), ""
        # A line that goes on cannot close the block any more, whatever it ends in.
        self._in_fenced_line = not newline
        return len(line) + len(newline), ""


def spoken(text: str, place: Place = Place.LINE_START) -> str:
    """What is said of the whole `text`."""
    filter = SpokenText(place)
    return filter.feed(text) + filter.flush()


def _left_out(text: str, final: bool) -> Step:
    return 1, ""


def _is_inside_word(mark: str, before: str, after: str) -> bool:
    """`snake_case` and `2*3`; in scripts without spaces a `*` beside letters is emphasis all the same."""
    both = before.isalnum() and after.isalnum()
    return both and (mark == "_" or (before.isascii() and after.isascii()))
