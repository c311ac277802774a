"""The few queries that clients look connectors and models up with. Others are refused, never half understood."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from gateway.errors import InvalidRequest

Document = Mapping[str, Any]


def matches(query: Any, document: Document) -> bool:
    """Whether `document` is a hit of `query`. Raises InvalidRequest for a query that is not known."""
    if not isinstance(query, dict) or len(query) != 1:
        raise InvalidRequest("[query] must hold exactly one query", code="parsing_exception")
    ((kind, clause),) = query.items()
    test = QUERIES.get(kind)
    if test is None:
        raise InvalidRequest(f"unknown query [{kind}]", code="parsing_exception")
    if not isinstance(clause, dict):
        raise InvalidRequest(f"[{kind}] must be an object", code="parsing_exception")
    return test(clause, document)


def _match_all(clause: Mapping[str, Any], document: Document) -> bool:
    return True


def _match(clause: Mapping[str, Any], document: Document) -> bool:
    """A hit when one word is in the field, as in an analysed text."""
    field, wanted = _field(clause, "query")
    words = set(_text(_value(document, field)).lower().split())
    return bool(words & set(_text(wanted).lower().split()))


def _term(clause: Mapping[str, Any], document: Document) -> bool:
    field, wanted = _field(clause, "value")
    return _text(_value(document, field)) == _text(wanted)


def _terms(clause: Mapping[str, Any], document: Document) -> bool:
    field, wanted = _field(clause, "terms")
    return isinstance(wanted, list) and _text(_value(document, field)) in map(_text, wanted)


def _ids(clause: Mapping[str, Any], document: Document) -> bool:
    values = clause.get("values", [])
    return isinstance(values, list) and document["_id"] in values


def _bool(clause: Mapping[str, Any], document: Document) -> bool:
    def results(name: str) -> list[bool]:
        queries = clause.get(name, [])
        return [matches(query, document) for query in (queries if isinstance(queries, list) else [queries])]

    should = results("should")
    needed = results("must") + results("filter")
    return all(needed) and not any(results("must_not")) and (any(should) or bool(needed) or not should)


QUERIES: dict[str, Callable[[Mapping[str, Any], Document], bool]] = {
    "match_all": _match_all,
    "match": _match,
    "match_phrase": _term,
    "term": _term,
    "terms": _terms,
    "ids": _ids,
    "bool": _bool,
}


def _field(clause: Mapping[str, Any], key: str) -> tuple[str, Any]:
    """The field and what is wanted there: `{"name": "x"}` or `{"name": {"query": "x"}}`."""
    named = {name: value for name, value in clause.items() if name not in ("boost", "_name")}
    if len(named) != 1:
        raise InvalidRequest("a query names exactly one field", code="parsing_exception")
    ((field, wanted),) = named.items()
    return field.removesuffix(".keyword"), wanted.get(key) if isinstance(wanted, dict) else wanted


def _value(document: Document, path: str) -> Any:
    value: Any = document
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
