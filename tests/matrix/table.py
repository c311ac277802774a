"""The matrix as Markdown, between its markers in README.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap

from tests.matrix.client import Client
from tests.matrix.column import Column
from tests.matrix.proving import LETTERS, MEANING
from tests.running import ROOT

README = ROOT / "README.md"
BEGIN, END = "<!-- matrix -->\n", "<!-- /matrix -->"
NOTHING = "–"
WIDTH = 120


def table(clients: Sequence[Client], columns: Sequence[Column], proved: Mapping[tuple[str, str], str]) -> str:
    """One row a wire, one column a provider; what stands below says why a letter is missing."""
    names = list(dict.fromkeys(column.name for column in columns))
    lines = ["| wire: client | " + " | ".join(names) + " |", "| --- |" + " --- |" * len(names)]
    for client in clients:
        cells = [_cell(proved.get((client.name, name))) for name in names]
        lines.append(f"| {client.name} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *_legend(clients, columns)]) + "\n"


def _cell(letters: str | None) -> str:
    """Six places; one that the protocol or the provider has no words for is a dot."""
    if letters is None:
        return NOTHING
    return "`" + "".join(letter if letter in letters else "·" for letter in LETTERS) + "`"


def _legend(clients: Sequence[Client], columns: Sequence[Column]) -> list[str]:
    meanings = "; ".join(f"`{letter}` {MEANING[letter]}" for letter in LETTERS)
    lines = [*_wrapped(f"{meanings}."), ""]
    reasons: dict[str, list[str]] = {}
    both: list[Client | Column] = [*clients, *columns]
    for named in both:
        for letter, reason in (*named.cannot.items(), *getattr(named, "cannot_whole", {}).items()):
            reasons.setdefault(f"`{letter}`: {reason}", []).append(_named(named))
    lines.append(f"A dot is what cannot be said there, {NOTHING} what the provider does not do (speech, or chat):")
    lines.append("")
    for reason, names in reasons.items():
        lines += _wrapped(f"- {reason} ({', '.join(names)})", "  ")
    return lines


def _wrapped(text: str, indent: str = "") -> list[str]:
    return wrap(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _named(named: Client | Column) -> str:
    return f"{named.name}'s voice" if isinstance(named, Column) and named.kind == "speech" else named.name


def in_readme() -> str:
    """The table that the README has."""
    return _around()[1]


def write(text: str) -> None:
    """Put `text` in its place."""
    before, _, after = _around()
    README.write_text(before + text + after, encoding="utf-8")


def _around() -> tuple[str, str, str]:
    before, begin, rest = README.read_text("utf-8").partition(BEGIN)
    text, end, after = rest.partition(END)
    assert begin
    assert end
    return before + begin, text, end + after
