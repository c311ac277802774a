"""Cutting text into sentences of many scripts, whatever the deltas are."""

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.sentences import DEFAULT_LIMIT, SentenceCutter

EMOJI = "👨‍👩‍👧‍👦🏽🇰🇷é☎️"
ALPHABET = st.text(
    st.sampled_from("ab Iz,;:—.!?…\"')」”(。！，、؟।4\n 안녕요今はक्षि" + EMOJI) | st.characters(codec="utf-8"),
    max_size=700,
)


def pieces_of(text: str, *sizes: int, limit: int = DEFAULT_LIMIT, first_clause: bool = False) -> list[str]:
    """The pieces of `text` fed in deltas of `sizes`, over and over; whole without sizes."""
    cutter = SentenceCutter(limit, first_clause=first_clause)
    pieces: list[str] = []
    position = turn = 0
    while position < len(text):
        size = sizes[turn % len(sizes)] if sizes else len(text)
        pieces += cutter.feed(text[position : position + size])
        position, turn = position + size, turn + 1
    return pieces + cutter.flush()


@pytest.mark.parametrize(
    "pieces",
    [
        ["Hello there.", "How are you?", "Fine!"],
        ["今天天气真好。", "我们出去吧。", "真的吗？！", "好的！"],
        ["今日は。", "元気ですか？", "はい。"],
        ["円周率は3.14です。", "v1.0は$3.50です。", "安い！"],
        ["圆周率是3.14。", "v1.0卖$3.50。", "好！"],
        ["नमस्ते।", "आप कैसे हैं?", "ठीक॥"],
        ["كيف حالك؟", "أنا بخير۔", "شكرا"],
        ["「はい。」", "と言った。"],
        ["他说：“好。”", "我走了。"],
        ['他说："好。"', "我走了。", '"走！"', "她说。"],
    ],
)
def test_sentences_of_many_scripts(pieces: list[str]) -> None:
    separator = " " if pieces[0][-1] in ".?!।؟" else ""
    assert pieces_of(separator.join(pieces)) == pieces
    assert pieces_of(separator.join(pieces), 1) == pieces


def test_korean_sentences_with_and_without_a_space() -> None:
    assert pieces_of("안녕하세요. 반갑습니다! 오늘은 좋네요.") == ["안녕하세요.", "반갑습니다!", "오늘은 좋네요."]
    assert pieces_of("안녕하세요.반갑습니다.") == ["안녕하세요.", "반갑습니다."]


@pytest.mark.parametrize(
    "sentence",
    [
        "Pi is 3.14 and it costs $3.50 in v1.0 of it.",
        "Dr. Smith met Mrs. Jones at 5 p.m. on St. John street, e.g. here.",
        "The U.S. Government has No. 5 and Fig. 3.",
        "Open https://a.b/c.d?e=f.g or main.py or 보고서.pdf now.",
        "We open at 9 a.m. on Mondays and at 10 a.m. from May on.",
        "J. Smith wrote vol. 3, i.e. the last one, etc. and so on.",
        "Wait... what is it?",
        '"Really?" he asked (twice!) of her.',
        "1. First of all",
        '그는 "안녕."라고 말했다.',
    ],
)
def test_stops_inside_a_sentence_do_not_cut_it(sentence: str) -> None:
    assert pieces_of(sentence) == [sentence]
    assert pieces_of(sentence, 1) == [sentence]


@pytest.mark.parametrize(
    "pieces",
    [
        ["It opens at 5 p.m.", "The shop is here."],
        ["It opens at 9 a.m.", "Come early!"],
        ["It is $3.50.", "Or 3.14.", "Not v1.0.", "Ask Dr. Smith."],
        ["3.14 버전이 나왔습니다.", "가격은 $3.50 입니다.", "v1.0 입니다!"],
        ["I said no.", "No.", "I mean it."],
        ["So do I.", "Really!"],
        ['He said "Yes."', "(I knew.)", "Then he left…", "Gone."],
        ["It was 3.14.", "In 2024.", "Read main.rs.", "Visit example.com.", "End"],
    ],
)
def test_sentences_that_end_in_something_unusual(pieces: list[str]) -> None:
    assert pieces_of(" ".join(pieces), 1) == pieces


def test_a_newline_ends_a_piece() -> None:
    assert pieces_of("one\ntwo\r\n\nthree", 1) == ["one", "two", "three"]


def test_a_certain_sentence_is_given_before_more_text_comes() -> None:
    cutter = SentenceCutter(first_clause=False)
    assert cutter.feed("Hello there.") == []
    assert cutter.feed(" ") == ["Hello there."]
    assert cutter.feed("好。我们") == ["好。"]


def test_only_the_first_piece_may_be_a_clause() -> None:
    text = "Well, that is a rather good question, I would say. Now, that was the first one, was it not?"
    assert pieces_of(text, 1, first_clause=True) == [
        "Well, that is a rather good question,",
        "I would say.",
        "Now, that was the first one, was it not?",
    ]
    assert pieces_of("好的，今天天气真的非常好，我们出去吧。", first_clause=True)[0] == "好的，今天天气真的非常好，"
    assert pieces_of("It is 1,000,000 and 10:30 here, ok", first_clause=True)[0] == "It is 1,000,000 and 10:30 here,"


def test_text_without_a_stop_is_cut_at_pauses_then_spaces_then_characters() -> None:
    assert max(map(len, pieces_of("hello there, you and me, " * 40))) <= DEFAULT_LIMIT
    assert all(piece.endswith(",") for piece in pieces_of("hello there, you and me, " * 40))
    assert set(" ".join(pieces_of("word " * 200)).split()) == {"word"}
    assert pieces_of("x" * 500) == ["x" * 220, "x" * 220, "x" * 60]


@pytest.mark.parametrize("character", ["👨‍👩‍👧‍👦", "🇰🇷", "e\u0301\u0323", "👋🏽", "क्षि", "각"])
def test_a_character_of_several_codes_is_never_cut(character: str) -> None:
    text = character * 100
    for limit in (20, 21, 23, 27):
        pieces = pieces_of(text, 1, limit=limit)
        assert "".join(pieces) == text
        assert all(piece == character * (len(piece) // len(character)) for piece in pieces)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ALPHABET, st.lists(st.integers(1, 40), min_size=1, max_size=8), st.booleans(), st.sampled_from([8, 50, 220]))
def test_pieces_hold_all_the_text_however_it_was_split(
    text: str, sizes: list[int], first_clause: bool, limit: int
) -> None:
    pieces = pieces_of(text, *sizes, limit=limit, first_clause=first_clause)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(0 < len(piece) <= limit for piece in pieces)
    assert pieces == pieces_of(text, limit=limit, first_clause=first_clause)
    assert pieces == pieces_of(text, 1, limit=limit, first_clause=first_clause)


@pytest.mark.parametrize("unit", ["It is so. ", "x", "今天。", "a. ", ". ", '."', "e\u0301", "p.m. ", "\n", "…"])
def test_a_long_text_takes_time_in_proportion(unit: str) -> None:
    text = (unit * 100_000)[:100_000]
    began = time.process_time()
    pieces_of(text, 1)
    assert time.process_time() - began < 2
