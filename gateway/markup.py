"""The marks of Markdown, HTML and emoji as regular expressions, with what a piece of text could still become.

A `*_OPEN` pattern matches a beginning that needs more text before anything can be said about it.
"""

from __future__ import annotations

import re

EMOJI_CHARACTERS = (
    "\u200d\u20e3\ufe0e\ufe0f\u2194-\u2199\u21a9\u21aa\u231a\u231b\u2328\u23cf\u23e9-\u23fa\u24c2\u25aa\u25ab\u25b6\u25c0"
    "\u25fb-\u25fe\u2600-\u2775\u2794-\u27bf\u2934\u2935\u2b00-\u2bff\u3030\u303d\u3297\u3299"
    "\U0001f000-\U0001f0ff\U0001f10d-\U0001faff\U000e0020-\U000e007f"
)
"""Without the numbers among them, such as \u2776 and \U0001f101: those are said."""
EMOJI = re.compile(f"[{EMOJI_CHARACTERS}]+")
ZERO_WIDTH_JOINER = "\u200d"

_URL_START = r"(?<![A-Za-z0-9])(?:https?://|www\.|(?:h(?:t(?:t(?:p(?:s?(?::/?)?)?)?)?)?|ww?w?)\Z)"
MARK = re.compile(rf"[\n\r*_~`\[<\\]|!(?=\[|\Z)|[{EMOJI_CHARACTERS}]|{_URL_START}", re.IGNORECASE)
MARK_IN_CODE = re.compile(rf"[\n\r`]|[{EMOJI_CHARACTERS}]|{_URL_START}", re.IGNORECASE)

URL = re.compile(r"https?://|www\.", re.IGNORECASE)
# A URL ends where a script without spaces begins: its particle or next word has no space before it.
URL_BODY = re.compile(
    r"[^\s<>\"`|\\^{}\u2018-\u201f\u3000-\u30ff\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]*"
)
URL_TRAIL = re.compile(r"[.,;:!?)\]'*_~]*\Z")

LINK = re.compile(r"!?\[((?:[^\[\]\n]|\[[^\[\]\n]*\])*+)\]\(")
LINK_OPEN = re.compile(r"!?(?:\[(?:[^\[\]\n]|\[[^\[\]\n]*(?:\]|\Z))*+\]?)?\Z")
FOOTNOTE = re.compile(r"\[\^[^\]\s]{1,20}\]")

TAG = re.compile(
    r"<(?:!--[^\n]*?--|/?[A-Za-z][^\s<>]*[^\S\n]*/?|[A-Za-z][\w:-]*(?=[^<>\n]*=)"
    r"(?:[^\S\n]+[\w:@.-]+(?:[^\S\n]*=[^\S\n]*(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s\"'<>]+))?)*[^\S\n]*/?)>"
)
TAG_OPEN = re.compile(
    r"<(?:!(?:-(?:-[^\n]*)?)?|[A-Za-z/](?:[^<>\n\"']|\"[^\"\n]*(?:\"|\Z)|'[^'\n]*(?:'|\Z))*)?\Z"
)
BREAK_TAG = re.compile(r"</?(?:br|p|div|li|tr|h[1-6])\b", re.IGNORECASE)

ESCAPABLE = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")

INDENT = re.compile(r"[ \t>]+")
HEADING = re.compile(r"#{1,6}(?:[ \t]+|(?=\n))")
ITEM = re.compile(r"(?:[-*+•‣◦]|\d{1,3}[.)])(?:[ \t]+|(?=\n))")
TASK = re.compile(r"\[[ xX]\][ \t]+")
RULE = re.compile(r"([-=*_])\1\1+")
FENCE = re.compile(r"(`{3,})[^`\n]*\n|(~{3,})[^\n]*\n")
FENCE_OPEN = re.compile(r"(?:`{3,}[^`\n]*|~{3,}[^\n]*)\Z")
LINE_OPEN = re.compile(r"(?:#{1,6}|[-*+•‣◦]|\d{1,3}[.)]?|`{1,2}|~{1,2}|([-=*_])\1?|\[[ xX]?\]?)\Z")
