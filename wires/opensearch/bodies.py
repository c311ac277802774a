"""What every route of this wire checks and answers: query parameters, the JSON body, write and search results."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import Request
from starlette.responses import Response

from gateway.callers import who_asks
from gateway.connector import Record
from gateway.errors import Forbidden, InvalidRequest, Unsupported
from gateway.registered import Kept, Registered
from wires.base import gateway_of
from wires.opensearch.errors import CONTENT_TYPE, FLAT, illegal_argument
from wires.opensearch.matching import matches

ALWAYS_LEGAL = frozenset({"pretty", "human", "error_trace", "filter_path", "format", "source"})
OWN_PARAMETERS = {"_register": {"deploy"}, "_upload": {"deploy"}, "_search": {"size", "from"}}
"""Further query parameters, by the last part of the path."""
MOST_HITS = 10_000


def check_parameters(request: Request) -> None:
    """Raises InvalidRequest for a query parameter that the route does not know."""
    path = request.url.path
    legal = ALWAYS_LEGAL | OWN_PARAMETERS.get(path.rpartition("/")[2], set())
    unknown = [f"[{name}]" for name in dict.fromkeys(request.query_params) if name not in legal]
    if unknown:
        word = "parameter" if len(unknown) == 1 else "parameters"
        raise illegal_argument(f"request [{path}] contains unrecognized {word}: {', '.join(unknown)}")


async def read_object(request: Request) -> dict[str, Any]:
    """The body, which must be a JSON object. Raises InvalidRequest in OpenSearch's words."""
    raw = await request.body()
    if not raw.strip():
        raise InvalidRequest("request body is required", code="parse_exception")
    content_type = request.headers.get("content-type")
    if content_type is None:
        raise InvalidRequest("Content-Type header is missing", status=406, code=FLAT)
    kind = content_type.partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise InvalidRequest(f"Content-Type header [{content_type}] is not supported", status=406, code=FLAT)
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        where = f" at line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise InvalidRequest(f"The request body is not JSON{where}.", code="json_parse_exception") from None
    if not isinstance(value, dict):
        raise InvalidRequest("The request body must be a JSON object.", code="parsing_exception")
    return value


def answer(request: Request, body: Mapping[str, Any]) -> Response:
    """A success, indented when the client asks for `pretty`."""
    pretty = request.query_params.get("pretty", "false") in ("", "true")
    text = json.dumps(body, ensure_ascii=False, indent=2 if pretty else None, separators=None if pretty else (",", ":"))
    return Response(text.encode("utf-8", "replace"), media_type=CONTENT_TYPE)


def registered_of(request: Request) -> Registered:
    """Where connectors and models are kept. Raises Unsupported in a service without a store."""
    registered = gateway_of(request).registered
    if registered is None:
        raise Unsupported("This service keeps no connectors and models: it runs without a store.")
    return registered


def demand_creator() -> None:
    """Raises Forbidden for a caller who may not change connectors and models."""
    if not who_asks().creates:
        raise Forbidden(
            "Connectors and models are managed with the admin key (POLYWIRE_ADMIN_KEY); "
            "where none is configured, by clients on the service's own machine."
        )


def written(index: str, id: str, result: str, version: int) -> dict[str, Any]:
    """The answer to an update or a deletion."""
    shards = {"total": 1, "successful": 1, "failed": 0}
    body: dict[str, Any] = {"_index": index, "_id": id, "_version": version, "result": result}
    if result == "not_found":
        body["forced_refresh"] = True
    return body | {"_shards": shards, "_seq_no": version, "_primary_term": 1}


async def search(request: Request, index: str, found: Iterable[Kept[Any]]) -> Response:
    """The hits among `found`: `match_all`, `match`, `term`, `terms`, `ids` and `bool` queries, `from` and `size`."""
    if request.method == "GET" and not await request.body():
        body: dict[str, Any] = {}
    else:
        body = await read_object(request)
    query = body.get("query", {"match_all": {}})
    hits = [kept for kept in found if matches(query, {"_id": kept.id, **source(kept.record)})]
    first, size = (_count(request, body, name, default) for name, default in (("from", 0), ("size", 10)))
    return answer(
        request,
        {
            "took": 1,
            "timed_out": False,
            "_shards": {"total": 1, "successful": 1, "skipped": 0, "failed": 0},
            "hits": {
                "total": {"value": len(hits), "relation": "eq"},
                "max_score": 1.0 if hits else None,
                "hits": [_hit(index, kept) for kept in hits[first : first + size]],
            },
        },
    )


def source(record: Record) -> dict[str, Any]:
    """A record as clients see it."""
    return record.model_dump(mode="json", exclude_none=True)


def _hit(index: str, kept: Kept[Any]) -> dict[str, Any]:
    place = {"_index": index, "_id": kept.id, "_version": kept.version, "_seq_no": kept.version - 1}
    return place | {"_primary_term": 1, "_score": 1.0, "_source": source(kept.record)}


def _count(request: Request, body: Mapping[str, Any], name: str, default: int) -> int:
    value = request.query_params.get(name, body.get(name, default))
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = -1
    if not 0 <= number <= MOST_HITS:
        raise illegal_argument(f"[{name}] must be a whole number from 0 to {MOST_HITS}")
    return number
