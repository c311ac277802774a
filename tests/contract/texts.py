"""Two hundred texts, the same in every run, made of what has ever cost a wire some of its bytes."""

from __future__ import annotations

import random

SEED = 20_251
COUNT = 200
PARTS = (
    "안녕하세요",
    "한",
    "👩‍👩‍👧",
    "👋🏽",
    "🇰🇷",
    "שלום עולם",
    "\u202bمرحبا\u202c",
    "e\u0301",
    "\ufeff",
    "\r",
    "\n",
    "\r\n",
    "\n\n",
    "\r\r\n",
    "\u2028",
    "\u2029",
    "\x85",
    "\v\f",
    "\x1c\x1d\x1e",
    "\0",
    "\x01\x1b[31m\x7f",
    "\t",
    " ",
    "   ",
    "data:",
    "data: [DONE]",
    "event: done\n",
    ": comment\n",
    "id: 7\n",
    "https://example.org/",
    "${parameters.model}",
    "${credential.key}",
    "{{x}}",
    '"',
    "\\",
    "\\ud83d",
    "\\u0000",
    "</script>",
    "%00%0a",
    '{"error": "no"}',
    "null",
    "The quick brown fox",
    "<|eot_id|>",
    "\U0010ffff",
    "\uffff",
)
BLANKS = ("", " ", "  ", "\n", "\t", "\r\n", "\u2028", "\u00a0")


def texts() -> list[str]:
    """Every part by itself, and mixtures with blanks at both ends."""
    chance = random.Random(SEED)
    mixtures = [
        chance.choice(BLANKS) + "".join(chance.choices(PARTS, k=chance.randint(2, 12))) + chance.choice(BLANKS)
        for _ in range(COUNT - len(PARTS))
    ]
    return [*PARTS, *mixtures]
