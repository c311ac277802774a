"""What no other route of this wire takes, answered as OpenSearch's router does."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.responses import PlainTextResponse, Response

from gateway.errors import InvalidRequest
from wires.opensearch import cluster, connectors, models, predict, settings, tasks
from wires.opensearch.errors import FLAT, NO_HANDLER, WIRE

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
ROUTES = [
    route
    for module in (connectors, models, tasks, predict, settings, cluster)
    for route in module.router.routes
    if isinstance(route, APIRoute)
]
router = APIRouter(include_in_schema=False)


@router.api_route("/_plugins/{path:path}", methods=METHODS)
@router.api_route("/_cluster/{path:path}", methods=METHODS)
@router.api_route("/_nodes/{path:path}", methods=METHODS)
async def unknown(request: Request) -> Response:
    """A wrong method, a path that nobody knows, or a question for the methods."""
    allowed = sorted(
        {method for route in ROUTES if route.path_regex.match(request.url.path) for method in route.methods or ()}
    )
    uri = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    if not allowed:
        raise InvalidRequest(f"no handler found for uri [{uri}] and method [{request.method}]", code=NO_HANDLER)
    headers = {"allow": ", ".join(allowed)}
    if request.method == "OPTIONS":
        return PlainTextResponse("", headers=headers)
    error = InvalidRequest(
        f"Incorrect HTTP method for uri [{uri}] and method [{request.method}], allowed: [{', '.join(allowed)}]",
        status=405,
        code=FLAT,
    )
    response = WIRE.refuse(error)
    response.headers.update(headers)
    return response
