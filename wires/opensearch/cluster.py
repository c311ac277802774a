"""What OpenSearch's clients ask of the cluster itself: who it is, whether it is well, at which addresses it is.

`/` is BentoML's page as well, so it is answered here only to a request that is a client's by what it says of itself.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope

from wires.base import gateway_of, headers_of
from wires.opensearch.bodies import answer

NAME = "polywire"
CLIENTS = "opensearch-"
"""How the `User-Agent` of opensearch-py, -js, -java, -go, -net, -rs, -ruby and -php begins."""
JSON = "application/json"
UNKNOWN = "unknown"
"""What OpenSearch itself says of a build that it does not know. Java's client wants every field."""
VERSION = {
    "distribution": "opensearch",
    "number": "3.8.0",  # the first whose ML Commons streams over gRPC, too
    "build_type": UNKNOWN,
    "build_hash": UNKNOWN,
    "build_date": UNKNOWN,
    "build_snapshot": False,
    "lucene_version": UNKNOWN,
    "minimum_wire_compatibility_version": "2.19.0",
    "minimum_index_compatibility_version": "2.0.0",
}
INFO = {
    "name": NAME,
    "cluster_name": NAME,
    "cluster_uuid": "_na_",  # OpenSearch's own for a cluster that has no state
    "version": VERSION,
    "tagline": "The OpenSearch Project: https://opensearch.org/",
}
HEALTH = {
    "cluster_name": NAME,
    "status": "green",
    "timed_out": False,
    "number_of_nodes": 1,
    "number_of_data_nodes": 1,
    "discovered_master": True,
    "discovered_cluster_manager": True,
    **dict.fromkeys(("active_primary_shards", "active_shards", "relocating_shards", "initializing_shards"), 0),
    **dict.fromkeys(("unassigned_shards", "delayed_unassigned_shards", "number_of_pending_tasks"), 0),
    **dict.fromkeys(("number_of_in_flight_fetch", "task_max_waiting_in_queue_millis"), 0),
    "active_shards_percent_as_number": 100.0,
}
PORTS = {"http": 80, "https": 443}


class ClientRoute(APIRoute):
    """A route that is there for OpenSearch's clients and for those that ask for JSON, and for nobody else."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Starlette's question; a route that does not match leaves the request to BentoML."""
        match, child = super().matches(scope)
        return (match, child) if match is Match.NONE or _wants_cluster(scope) else (Match.NONE, {})


router = APIRouter(include_in_schema=False)
root = APIRouter(include_in_schema=False, route_class=ClientRoute)


@root.api_route("/", methods=["GET", "HEAD"])
async def info(request: Request) -> Response:
    """The answer to `client.info()` and `client.ping()`."""
    return answer(request, INFO)


@router.get("/_cluster/health")
async def health(request: Request) -> Response:
    """Green: there is no index whose shards could be anywhere."""
    return answer(request, HEALTH)


@router.get("/_nodes/http")
@router.get("/_nodes/_all/http")
async def nodes(request: Request) -> Response:
    """For clients that sniff. They go on at the address that is named here: the one by which they came."""
    url = urlsplit(gateway_of(request).settings.public_url or str(request.url))
    host = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname
    address = f"{host}:{url.port or PORTS[url.scheme]}"
    node: dict[str, Any] = {
        "name": NAME,
        "version": VERSION["number"],
        "roles": ["data", "ingest", "ml"],
        "http": {"bound_address": [address], "publish_address": address},
    }
    counts = {"total": 1, "successful": 1, "failed": 0}
    return answer(request, {"_nodes": counts, "cluster_name": NAME, "nodes": {NAME: node}})


def _wants_cluster(scope: Scope) -> bool:
    """Whether OpenSearch is asked, and not the page that browsers open. opensearch-js sends no `Accept` at all."""
    headers = headers_of(scope)
    if headers.get("user-agent", "").startswith(CLIENTS):
        return True
    return JSON in headers.get("accept", "")
