"""Models, versions and collections, as far as Replicate's clients ask for them before they run anything."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from gateway.catalog import Gateway
from gateway.errors import NotFound
from wires.base import gateway_of
from wires.replicate.errors import REFUSALS, JsonResponse
from wires.replicate.objects import base_url
from wires.replicate.schema import find_model, model_object, version_id, version_object

router = APIRouter(tags=["Replicate"], responses=REFUSALS)

STREAMING = {
    "slug": "streaming-language-models",
    "name": "Streaming language models",
    "description": "Language models whose answer can be read while it is written.",
}


@router.get("/v1/models/{owner}/{name}")
async def get_model(request: Request, owner: str, name: str) -> Response:
    """One model."""
    return JsonResponse(model_object(await find_model(gateway_of(request), f"{owner}/{name}"), base_url(request)))


@router.get("/v1/models/{owner}/{name}/versions")
async def list_versions(request: Request, owner: str, name: str) -> Response:
    """A model's versions: there is one."""
    row = await find_model(gateway_of(request), f"{owner}/{name}")
    return JsonResponse({"previous": None, "next": None, "results": [version_object(row)]})


@router.get("/v1/models/{owner}/{name}/versions/{id}")
async def get_version(request: Request, owner: str, name: str, id: str) -> Response:
    """One version."""
    row = await find_model(gateway_of(request), f"{owner}/{name}")
    if id != version_id(row):
        raise NotFound(f"Model {row.id!r} has no such version; its version is {version_id(row)}.")
    return JsonResponse(version_object(row))


@router.get("/v1/collections")
async def list_collections() -> Response:
    """The collections: there is one."""
    return JsonResponse({"previous": None, "next": None, "results": [STREAMING]})


@router.get("/v1/collections/{slug}")
async def get_collection(request: Request, slug: str) -> Response:
    """The models that Replicate's clients can name and that stream."""
    if slug != STREAMING["slug"]:
        raise NotFound(f"There is no such collection; there is {STREAMING['slug']!r}.")
    return JsonResponse({**STREAMING, "models": _streaming(gateway_of(request), base_url(request))})


@router.get("/v1/account")
async def account() -> Response:
    """Tools ask for this to see whether their token is taken."""
    return JsonResponse({"type": "organization", "username": "polywire", "name": "Polywire", "github_url": None})


def _streaming(gateway: Gateway, base: str) -> list[dict[str, Any]]:
    return [model_object(row, base) for row in gateway.models() if row.kind == "chat" and row.id.count("/") == 1]
