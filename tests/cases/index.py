"""Which test proves which open case: a test, or its module for all of its tests, says `Case X1` in its docstring."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.running import ROOT

CASES = tuple(
    [
        "X1",
        "C1",
        "R1",
        "V1",
        "E1",
        "C3",
        "R2",
        "B1",
        "T1",
        "T3",
        "A1",
        "V3",
        "S3",
        "C5",
        "C7",
        "I1",
        "S5",
        "N2",
        "N1",
        "B3",
        "L1",
        "W3",
        "E5",
        "A3",
        "P1",
        "R7",
        "A7",
        "Z1",
        "Z2",
        "S2",
        "S7",
        "Z4",
        "W1",
        "Q1",
        "A5",
        "X4",
        "W5",
    ]
)
PROOFS: dict[str, tuple[str, ...]] = {
    "C1": ("tests/test_chat_completions.py::test_every_server_says_the_same_however_it_is_cut",),
    "V1": (
        "tests/test_spoken.py::test_marks_are_not_said",
        "tests/test_speech_chat.py::test_text_passes_unchanged_and_its_sentences_are_spoken",
    ),
    "E1": ("tests/contract/test_providers.py::test_text_is_whole_however_the_bytes_are_cut",),
    "B1": (
        "tests/aws/test_converse_body.py::test_blank_turns_are_dropped_and_the_rest_alternates",
        "tests/aws/test_converse_body.py::test_nothing_but_blanks_is_the_callers_fault",
    ),
    "T1": ("tests/aws/test_closing.py::test_five_hundred_open_streams_need_no_threads",),
    "V3": ("tests/test_speech_chat.py::test_chinese_is_spoken_during_a_pause_of_the_chat",),
    "S3": ("tests/test_openai_chat.py::test_every_server_says_the_same",),
    "B3": ("tests/aws/test_sagemaker.py::test_parts_that_do_not_line_up_with_events",),
    "L1": (
        "tests/realtime/test_session.py::test_a_second_response_is_refused_and_the_first_completes",
        "tests/realtime/test_session.py::test_what_is_wrong_is_an_error_that_names_its_cause",
    ),
    "E5": ("tests/test_local_chat.py::test_characters_split_over_tokens_stay_whole",),
    "A3": ("tests/test_audio_render.py::test_odd_pieces_arrive_whole_and_the_odd_tail_is_dropped_and_counted",),
    "R7": ("tests/test_streams.py::test_a_retry_ends_with_the_first_event",),
    "Z1": (
        "tests/test_chat_completions.py::test_an_error_in_the_stream_never_quotes_the_key",
        "tests/test_openai_chat.py::test_an_impossible_base_url_is_told_without_its_password",
    ),
    "S2": (
        "tests/test_sse.py::test_any_cutting_gives_the_same_events",
        "tests/test_sse.py::test_line_ends_may_be_mixed",
    ),
    "S7": ("tests/test_generate.py::test_server_sent_events_are_framed_when_asked",),
    "Z4": ("tests/opensearch/test_template.py::test_any_text_arrives_as_itself_in_a_quoted_place",),
}
"""Tests that prove a case without naming it."""
NAMED = re.compile(r"\bCases? ((?:[A-Z]\d(?:'s)?(?:, | and )?)+)")
ID = re.compile(r"[A-Z]\d")


def proofs_by_case() -> dict[str, list[str]]:
    """The node ids of the tests that name each case."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for test, docstring in _documented(path):
            for case in _ids(docstring):
                found[case].append(f"{path.relative_to(ROOT)}::{test}")
    for case, tests in PROOFS.items():
        found[case] += tests
    return dict(found)


def exists(test: str) -> bool:
    """Whether there is a test of this node id."""
    path, _, name = test.partition("::")
    file = ROOT / path
    return file.exists() and name in {test for test, _ in _documented(file)}


def _documented(path: Path) -> Iterator[tuple[str, str]]:
    module = ast.parse(path.read_text(encoding="utf-8"))
    shared = ast.get_docstring(module) or ""
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.name, f"{shared}\n{ast.get_docstring(node) or ''}"


def _ids(docstring: str) -> set[str]:
    return {case for named in NAMED.findall(docstring) for case in ID.findall(named)}
