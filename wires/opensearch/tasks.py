"""`/_plugins/_ml/tasks`: what became of registrations and deployments."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from gateway.callers import who_asks
from gateway.errors import NotFound
from wires.opensearch.bodies import (
    answer,
    check_parameters,
    demand_creator,
    registered_of,
    search,
    source,
    written,
)
from wires.opensearch.errors import REFUSALS
from wires.opensearch.paths import ID

INDEX = ".plugins-ml-task"
router = APIRouter(
    prefix="/_plugins/_ml/tasks", tags=["OpenSearch"], dependencies=[Depends(check_parameters)], responses=REFUSALS
)


@router.api_route("/_search", methods=["GET", "POST"])
async def find(request: Request) -> Response:
    """Search the tasks that the caller may see."""
    return await search(request, INDEX, await registered_of(request).tasks.all(who_asks()))


@router.get(ID)
async def read(request: Request, id: str) -> Response:
    """One task."""
    kept = await registered_of(request).tasks.get(id, who_asks())
    if kept is None:
        raise NotFound(f"Failed to find task with the provided task id: {id}")
    return answer(request, source(kept.record))


@router.delete(ID)
async def delete(request: Request, id: str) -> Response:
    """Forget a task."""
    demand_creator()
    tasks = registered_of(request).tasks
    kept = await tasks.get(id, who_asks())
    if kept is None:
        raise NotFound("Failed to find task")
    await tasks.remove(id)
    return answer(request, written(INDEX, id, "deleted", kept.version + 1))
