"""Fills the `${parameters.x}` and `${credential.x}` of an ML Commons connector, in one pass.

What a caller sends is data: it is written as JSON, percent-encoded or checked, and never expanded again, so that a
prompt that holds `${...}` arrives as that text. Only the connector's own parameters may name further placeholders.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from urllib.parse import quote

from gateway.errors import InvalidRequest

PLACEHOLDER = re.compile(r"(\$?)\$\{(parameters|credential)\.([^{}:]+?)(?:\.toString\(\))?(?::-([^}]*))?\}")
BARE_NULL = re.compile(r'"\$\{parameters\.([^{}:]+):-null\}"')
QUOTES = re.compile(r'\\.|"', re.DOTALL)
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
DEEPEST = 8
"""How many connector parameters may name one another."""
MOST_FILLED = 10_000
"""How many placeholders one template may come to; parameters that name one another many times multiply them."""


class Place(Enum):
    """Where a template stands; it decides how a value is written."""

    BODY = "body"
    URL = "url"
    HEADER = "header"


@dataclass(frozen=True, slots=True)
class Values:
    """What placeholders stand for. A caller's parameter goes before the connector's of the same name."""

    connector: Mapping[str, str]
    request: Mapping[str, str] = field(default_factory=dict)
    credential: Mapping[str, str] = field(default_factory=dict, repr=False)

    def get(self, name: str, default: str = "") -> str:
        """A parameter as it stands, unfilled."""
        return self.request.get(name, self.connector.get(name, default))


@dataclass(frozen=True, slots=True)
class Filled:
    """A filled template, and the parameters that nothing defines; their placeholders are still in the text."""

    text: str
    missing: tuple[str, ...]


def fill(template: str, values: Values, place: Place) -> Filled:
    """Fill `template`. Raises InvalidRequest for a loop among parameters and for control characters in a header."""
    filling = _Filling(values, place)
    if place is Place.BODY:
        template = BARE_NULL.sub(lambda found: found[0] if filling.defines(found[1]) else "null", template)
    filling.expand(template, 0)
    text = "".join(filling.written)
    if place is Place.HEADER and CONTROL.search(text):
        raise InvalidRequest("A header of the connector would hold a line break or another control character.")
    return Filled(text, tuple(dict.fromkeys(filling.missing)))


def as_text(value: Any) -> str:
    """A parameter as ML Commons keeps it: a string as it is, anything else as JSON text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def is_json(text: str) -> bool:
    """Whether `text` is one JSON value."""
    try:
        json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return False
    return True


def decoded(text: str) -> Any:
    """`text` as JSON, or as it is when it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


class _Filling:
    def __init__(self, values: Values, place: Place) -> None:
        self._values = values
        self._place = place
        # A caller who could switch escaping off could write into the connector's own fields.
        self._raw = {name.strip() for name in values.connector.get("no_escape_params", "").split(",")}
        self._in_string = False
        self.written: list[str] = []
        self.missing: list[str] = []
        self._filled = 0

    def defines(self, name: str) -> bool:
        return name in self._values.request or name in self._values.connector

    def expand(self, template: str, depth: int) -> None:
        """Write a template of the connector's."""
        if depth > DEEPEST:
            raise InvalidRequest("The connector's parameters name one another without end.")
        end = 0
        # What no brace closes is no placeholder, and looking for its end from every beginning costs quadratic time.
        for found in PLACEHOLDER.finditer(template, 0, template.rfind("}") + 1):
            self._literal(template[end : found.start()])
            self._placeholder(found, depth)
            end = found.end()
        self._literal(template[end:])

    def _literal(self, text: str) -> None:
        self.written.append(text)
        if self._place is Place.BODY and QUOTES.findall(text).count('"') % 2:
            self._in_string = not self._in_string

    def _placeholder(self, found: re.Match[str], depth: int) -> None:
        escaped, kind, name, default = found.groups()
        self._filled += 1
        if self._filled > MOST_FILLED:
            raise InvalidRequest(f"The connector's template has more than {MOST_FILLED} placeholders.")
        if escaped:
            self.written.append(found[0][1:])
        elif kind == "credential":
            value = self._values.credential.get(name)
            self._leaf(name, found[0] if value is None else value)
        elif name in self._values.request:
            self._leaf(name, self._values.request[name])
        elif name in self._values.connector:
            self.expand(self._values.connector[name], depth + 1)
        elif default is not None:
            self._literal(default)
        else:
            self.missing.append(name)
            self.written.append(found[0])

    def _leaf(self, name: str, value: str) -> None:
        """Write a value that is data."""
        if self._place is Place.URL:
            self.written.append(quote(value, safe=""))
        elif self._place is Place.HEADER or name in self._raw or (not self._in_string and is_json(value)):
            self.written.append(value)
        else:
            self.written.append(json.dumps(value)[1:-1])


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
