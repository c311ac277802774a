"""Special tokens that a container leaks as text (TGI 2.0.1 sends `<|eot_id|>` as content) are taken out of a stream.

Only a whole one is, never a part of a piece: a model may well talk about `</s>`. A token that comes in several pieces
is held back until it is decided, and dropped only where the answer ends with it.
"""

from __future__ import annotations

SPECIAL_TOKENS = frozenset({"<|eot_id|>", "<|end_of_text|>", "<|im_end|>", "</s>", "<|endoftext|>", "<end_of_turn>"})
_BEGINNINGS = frozenset(token[:size] for token in SPECIAL_TOKENS for size in range(1, len(token)))
_LONGEST = max(map(len, _BEGINNINGS))


class SpecialTokens:
    """`feed` each piece of text and pass on what comes back, then `end`."""

    def __init__(self) -> None:
        self._begun = ""
        self._whole = ""

    def feed(self, text: str) -> str:
        """The text that is certain to be text, perhaps none."""
        if not self._begun and text in SPECIAL_TOKENS:
            return ""
        text = self._begun + text
        self._begun = ""
        if text in SPECIAL_TOKENS:
            self._whole += text
            return ""
        size = _beginning_size(text)
        self._begun = text[len(text) - size :]
        if size == len(text):
            return ""
        certain = self._whole + text[: len(text) - size]
        self._whole = ""
        return certain

    def end(self) -> str:
        """The text that was held back for nothing."""
        text = self._whole + self._begun if self._begun else ""
        self._begun = self._whole = ""
        return text


def _beginning_size(text: str) -> int:
    """How many of the last characters may be the beginning of a special token."""
    start = text.find("<", max(0, len(text) - _LONGEST))
    while start >= 0:
        if text[start:] in _BEGINNINGS:
            return len(text) - start
        start = text.find("<", start + 1)
    return 0
