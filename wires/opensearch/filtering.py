"""`response_filter`: the part of JSONPath that connectors use, `$.a.b[0]['c'][*]`."""

from __future__ import annotations

import re
from typing import Any

STEP = re.compile(
    r"\.(?P<name>[A-Za-z_][\w-]*)|\[(?P<index>-?[0-9]{1,9})\]|\[(?P<quote>['\"])(?P<key>.*?)(?P=quote)\]|(?P<all>\[\*\]|\.\*)"
)


class Absent(Exception):
    """The path leads nowhere, or is none that is known."""


def pick(path: str, value: Any) -> Any:
    """What `path` leads to in `value`. Raises Absent."""
    if not path.startswith("$"):
        raise Absent(path)
    try:
        return _walk(path, 1, value)
    except RecursionError:
        raise Absent(path) from None


def _walk(path: str, position: int, value: Any) -> Any:
    if position == len(path):
        return value
    step = STEP.match(path, position)
    if step is None:
        raise Absent(path)
    if step["all"]:
        items = list(value.values()) if isinstance(value, dict) else value
        if not isinstance(items, list):
            raise Absent(path)
        return [_walk(path, step.end(), item) for item in items]
    try:
        inner = value[int(step["index"])] if step["index"] else value[step["name"] or step["key"]]
    except (LookupError, TypeError):
        raise Absent(path) from None
    return _walk(path, step.end(), inner)
