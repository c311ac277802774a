"""Text that only looks like a model's special token is text."""

from __future__ import annotations

import pytest

from adapters.special_tokens import SpecialTokens


@pytest.mark.parametrize(
    "pieces",
    [
        ["the token </s> ends it"],
        ["the token </", "s", "> ends it"],
        ["a <", " b <|", "x"],
        ["ends with <|eot"],
        ["<", "<|eot_id|", "?"],
        ["say </", "s>", ", I said <"],
        ["<|eot_id|><|im_end|>!"],
    ],
)
def test_text_that_only_looks_like_a_special_token_is_kept(pieces: list[str]) -> None:
    special = SpecialTokens()
    assert "".join([*map(special.feed, pieces), special.end()]) == "".join(pieces)
