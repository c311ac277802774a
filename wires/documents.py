"""What the OpenAPI document says of the routes that read their bodies themselves: bodies, answers and refusals."""

from __future__ import annotations

from typing import Any

Responses = dict[int | str, dict[str, Any]]

JSON = "application/json"
EVENT_STREAM = "text/event-stream"
EVENTS: dict[str, Any] = {
    "schema": {
        "description": "One server-sent event; its data is JSON, or `[DONE]`.",
        "type": "object",
        "required": ["data"],
        "properties": {"event": {"type": "string"}, "data": {"type": "string"}},
    }
}


def fields(*required: str, **types: Any) -> dict[str, Any]:
    """An object's schema. A type is a name (`string`) or a schema of its own."""
    properties = {name: {"type": kind} if isinstance(kind, str) else kind for name, kind in types.items()}
    return {"type": "object", "required": list(required), "properties": properties}


def any_of(*types: str) -> dict[str, Any]:
    """A schema of one type or another; OpenAPI 3.0 has no lists of types."""
    return {"anyOf": [{"type": kind} for kind in types]}


def refusals(schema: dict[str, Any], media_type: str = JSON) -> Responses:
    """What a wire says of its refusals; FastAPI's own 422 never happens."""
    content = {media_type: {"schema": schema}}
    return {
        "4XX": {"description": "Refused; the body says why.", "content": content},
        "5XX": {"description": "Failed; the body says why.", "content": content},
    }


def answers(*media_types: str, status: int = 200, schema: dict[str, Any] | None = None) -> Responses:
    """A success in any of `media_types`; `schema` is that of the JSON form."""
    content: dict[str, Any] = {media_type: {} for media_type in media_types}
    if JSON in content:
        content[JSON] = {"schema": schema or {"type": "object"}}
    if EVENT_STREAM in content:
        content[EVENT_STREAM] = EVENTS
    return {status: {"description": "The answer.", "content": content}}


def takes(schema: dict[str, Any]) -> dict[str, Any]:
    """The `openapi_extra` of a route that reads its JSON body itself."""
    return {"requestBody": {"required": True, "content": {JSON: {"schema": schema}}}}
