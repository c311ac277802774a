"""What a body that does not fit its schema is told: one sentence with the field's place, never the caller's text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi.exceptions import RequestValidationError

from gateway.errors import InvalidRequest

Place = tuple[str | int, ...]


def first_problem(error: RequestValidationError) -> InvalidRequest:
    """The first problem; of a field that may have several shapes, the shape that the value came nearest to."""
    problems = [(_place(problem, error.body), str(problem["msg"])) for problem in error.errors()]
    first = problems[0][0]
    place, message = max((problem for problem in problems if problem[0][:1] == first[:1]), key=_depth)
    shown = _shown(place)
    sentence = f"{shown}: {message}." if shown else f"The request body is wrong: {message}."
    return InvalidRequest(sentence, param=shown or None)


def _depth(problem: tuple[Place, str]) -> int:
    return len(problem[0])


def _place(problem: Mapping[str, Any], body: Any) -> Place:
    """Where in the body the problem lies: pydantic also names the shapes that it tried on the way."""
    source, *parts = problem["loc"]
    if source != "body" or not isinstance(body, dict | list):
        return tuple(parts)
    kept: list[str | int] = []
    value: Any = body
    for number, part in enumerate(parts, 1):
        missing = problem["type"] == "missing" and number == len(parts)
        if missing or _holds(value, part):
            kept.append(part)
            value = None if missing else value[part]
    return tuple(kept)


def _holds(value: Any, part: str | int) -> bool:
    if isinstance(value, dict):
        return part in value
    return isinstance(value, list) and isinstance(part, int) and part < len(value)


def _shown(place: Sequence[str | int]) -> str:
    """`messages[0].content`, as OpenAI writes it."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")
