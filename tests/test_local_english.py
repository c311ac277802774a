"""Text becomes what the embedded voice can read, and no letter of it is lost."""

from __future__ import annotations

import pytest

from adapters.local_english import pieces, speakable


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("naïve café", "naïve café"),
        ("Ｈｅｌｌｏ", "Hello"),
        ("Nẵng Žižek Ěščř", "Nang Zizek Escr"),
        ("e\u0301te\u0301", "été"),
        ("𝐛𝐨𝐥𝐝 ﬁne", "bold fine"),
        ("٣ and ½ cup, 5 µm", "3 and ½ cup, 5 µm"),
        ("1234567890123456", "1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6"),
    ],
)
def test_text_is_made_into_letters_that_the_engine_knows(text: str, plain: str) -> None:
    assert speakable(text) == plain


def test_pieces_are_cut_at_marks_then_spaces_and_lose_nothing() -> None:
    text = "first part, " * 3 + "and the second part; " * 9 + "x" * 500
    cut = list(pieces(text, 100))
    assert max(len(piece) for piece in cut) <= 100
    assert "".join(cut).replace(" ", "") == text.replace(" ", "")
    assert cut[0].endswith((",", ";"))
