"""What of a written answer is said, whatever the deltas are."""

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.spoken import SpokenText, spoken

MARKS = ["**", "*", "_", "`", "```", "~~", "[", "](", ")", "!", "<b>", "<", ">", "\n", "- ", "1. ", "# ", "|", "\\"]
MARKS += ["<!--", "-->", '<a b="', '">', "='"]
WORDS = [
    "a",
    "굵게",
    "text",
    " ",
    "  ",
    "http://x.y/z",
    "www.x",
    "h",
    "ht",
    "😀",
    "👨‍👩‍👧",
    "2",
    ".",
    "é",
    "<!--",
    "-->",
    "---",
]


def fed(text: str, *sizes: int) -> str:
    cleaner = SpokenText()
    said = ""
    position = turn = 0
    while position < len(text):
        size = sizes[turn % len(sizes)]
        said += cleaner.feed(text[position : position + size])
        position, turn = position + size, turn + 1
    return said + cleaner.flush()


def words_of(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (
            "## 제목\n**굵게** `code` [링크](http://x) 😀\n- 하나\n1. 둘",
            "제목. 굵게 code 링크 하나. 둘",
        ),
        ("# Title?\ntext", "Title? text"),
        ("**bold** *it* _it_ __bold__ ***both*** ~~gone~~", "bold it it bold both gone"),
        ("**굵게**는 그는*정말*로", "굵게는 그는정말로"),
        ("a `b*c_d` e ``f`` g", "a b*c_d e f g"),
        ('see [the docs](http://x.y/(z) "title") now', "see the docs now"),
        ("[**bold** `code`](u) and [![alt](i.png)](v)", "bold code and alt"),
        ("![a cat](data:image/png;base64," + "A" * 5_000 + ") sat", "a cat sat"),
        ("go to https://a.b/c?d=e_f. Then www.x.org, ok (http://y.z)!", "go to . Then , ok ()!"),
        ("http://x.com을 보세요", "을 보세요"),
        ("<https://x.y> is <b class='z'>bold</b><br/>and", "is bold and"),
        ("👋🏽 hi 👨‍👩‍👧‍👦 there 🇰🇷 1️⃣ ❤️!", "hi there 1 !"),
        ("- one\n* two\n  - [x] three\n10) four\n+ five.", "one. two. three. four. five."),
        ("> quoted\n> more", "quoted more"),
        ("a\n```python\nx = [1](2)\n```\nb\n~~~\n```\n~~~\nc", "a b c"),
        ("````\n```\n````\nend", "end"),
        ("```ls -l``` lists", "ls -l lists"),
        ("```never closed\nx\n", ""),
        ("t\n| a | b |\n|---|---|\n| 1 | 2 |\nafter", "t after"),
        ("Title\n=====\na\n---\n***\nb", "Title a b"),
        ("as said[^1] in [1]", "as said in [1]"),
        ("\\*not emphasis\\* \\# x", "*not emphasis* # x"),
    ],
)
def test_marks_are_not_said(written: str, said: str) -> None:
    assert words_of(spoken(written)) == said
    assert words_of(fed(written, 1)) == said


@pytest.mark.parametrize(
    "text",
    [
        "2 * 3 * 4 and 2*3 and 2**3",
        "snake_case a_b C# #1 F# 5# #tag",
        "a < b and x<5 or y > 3",
        "if <y and z> or so",
        "array[0] and [1] and f(x)[2]",
        "3.14, $3.50, 1~3, -5, --flag, v1.0",
        "C:\\Users and a|b, AT&T, 50%",
        "Hello! Wow! What? html, http, www",
        "2024. 5. 3. 발표",
        "മലയാളം ന്‍ क्‍ष",
        "[open and (open",
    ],
)
def test_what_only_looks_like_a_mark_is_said(text: str) -> None:
    assert spoken(text) == text
    assert fed(text, 1) == text


def test_marks_split_over_deltas_are_not_said() -> None:
    cleaner = SpokenText()
    deltas = ["a *", "*b", "*", "* [te", "xt](ht", "tp://x) c\n`", "`", "`\ncode\n``", "`\nd"]
    assert words_of("".join(map(cleaner.feed, deltas)) + cleaner.flush()) == "a b text c d"


def test_plain_text_is_not_held_back() -> None:
    cleaner = SpokenText()
    assert [cleaner.feed(delta) for delta in ["Hello", " there!", " All 3", " is well.", "\n"]] == [
        "Hello",
        " there!",
        " All 3",
        " is well.",
        "\n",
    ]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(MARKS + WORDS), max_size=40).map("".join), st.lists(st.integers(1, 9), min_size=1))
def test_what_is_said_does_not_depend_on_the_deltas(text: str, sizes: list[int]) -> None:
    assert fed(text, *sizes) == spoken(text) == fed(text, 1)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(st.characters(categories=["L", "N", "Zs"]), max_size=200))
def test_letters_and_numbers_are_all_said(text: str) -> None:
    assert "".join(spoken(text).split()) == "".join(text.split())


@pytest.mark.parametrize(
    "unit", ["[", "![", "*", "`", "<a ", "h", "https://", "\\", "😀", "[]", "```\n", "_a", "(", "|"]
)
def test_a_long_text_takes_time_in_proportion(unit: str) -> None:
    text = (unit * 100_000)[:100_000]
    began = time.process_time()
    fed(text, 1)
    assert time.process_time() - began < 2
