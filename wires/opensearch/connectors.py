"""`/_plugins/_ml/connectors`: create, read, change, delete and search connectors."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from gateway.callers import who_asks
from gateway.connector import Connector, RegisteredModel
from gateway.errors import NotFound
from gateway.registered import Kept, Registered, new_id, now_ms
from gateway.trust import Trust
from wires.base import gateway_of
from wires.documents import fields, takes
from wires.opensearch.bodies import (
    answer,
    check_parameters,
    demand_creator,
    read_object,
    registered_of,
    search,
    source,
    written,
)
from wires.opensearch.errors import REFUSALS, refused
from wires.opensearch.paths import ID
from wires.opensearch.schema import flag, own_id, parse_connector

INDEX = ".plugins-ml-connector"
CONNECTOR = fields(
    "name",
    "version",
    "protocol",
    "credential",
    name="string",
    protocol="string",
    credential="object",
    parameters="object",
)
router = APIRouter(
    prefix="/_plugins/_ml/connectors", tags=["OpenSearch"], dependencies=[Depends(check_parameters)], responses=REFUSALS
)


@router.post("/_create", openapi_extra=takes(CONNECTOR))
async def create(request: Request) -> Response:
    """Keep a new connector."""
    demand_creator()
    body = await read_object(request)
    connector = parse_connector(body, Trust(gateway_of(request).settings))
    if flag(body, "dry_run", False):
        return answer(request, {"connector_id": "dryRunConnector"})
    id, now = own_id(body, "connector_id") or new_id(), now_ms()
    kept = connector.model_copy(update={"created_time": now, "last_updated_time": now})
    await registered_of(request).connectors.add(id, kept, who_asks())
    return answer(request, {"connector_id": id})


@router.api_route("/_search", methods=["GET", "POST"])
async def find(request: Request) -> Response:
    """Search the caller's connectors."""
    return await search(request, INDEX, await registered_of(request).connectors.all(who_asks()))


@router.get(ID)
async def read(request: Request, id: str) -> Response:
    """One connector, without its credential."""
    return answer(request, source((await _demand(registered_of(request), id)).record))


@router.put(ID, openapi_extra=takes(fields()))
async def change(request: Request, id: str) -> Response:
    """Change the fields that the body names."""
    demand_creator()
    registered = registered_of(request)
    body = await read_object(request)
    kept = await _demand(registered, id)
    in_use = [model.id for model in await _users(registered, id) if model.record.model_state == "DEPLOYED"]
    if in_use:
        raise refused(f"{_count(in_use)}, please undeploy the models first: [{', '.join(in_use)}]")
    old = kept.record
    merged: dict[str, Any] = {**source(old), "credential": old.credential, **body}
    merged["parameters"] = {**(old.parameters or {}), **(body.get("parameters") or {})}
    new = parse_connector(merged, Trust(gateway_of(request).settings))
    times = {"created_time": old.created_time, "last_updated_time": now_ms()}
    changed = await registered.connectors.change(kept, new.model_copy(update=times))
    return answer(request, written(INDEX, id, "updated", changed.version))


@router.delete(ID)
async def delete(request: Request, id: str) -> Response:
    """Delete a connector that no model uses. Deleting what is not there is no error here, as in OpenSearch."""
    demand_creator()
    registered = registered_of(request)
    kept = await registered.connectors.get(id, who_asks())
    if kept is None:
        return answer(request, written(INDEX, id, "not_found", 1))
    in_use = [model.id for model in await _users(registered, id)]
    if in_use:
        message = f"{_count(in_use)}, please delete or update the models first: [{', '.join(in_use)}]"
        raise refused(message, 409)
    await registered.connectors.remove(id)
    return answer(request, written(INDEX, id, "deleted", kept.version + 1))


async def _demand(registered: Registered, id: str) -> Kept[Connector]:
    kept = await registered.connectors.get(id, who_asks())
    if kept is None:
        raise NotFound(f"Failed to find connector with the provided connector id: {id}")
    return kept


async def _users(registered: Registered, id: str) -> list[Kept[RegisteredModel]]:
    return [model for model in await registered.models.all(who_asks()) if model.record.connector_id == id]


def _count(ids: list[str]) -> str:
    return f"{len(ids)} models are still using this connector"
