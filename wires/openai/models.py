"""`GET /v1/models` and `GET /v1/models/{id}`."""

from __future__ import annotations

import time

from fastapi import APIRouter, Request
from pydantic import BaseModel

from gateway.config import ModelRow
from gateway.errors import NotFound
from wires.base import gateway_of
from wires.openai.errors import REFUSED

router = APIRouter(tags=["OpenAI"])
STARTED_AT = int(time.time())


class ModelObject(BaseModel):
    """One model. `kind` is ours: chat, speech or transcription."""

    id: str
    object: str = "model"
    created: int = STARTED_AT
    owned_by: str = "polywire"
    kind: str


class ModelList(BaseModel):
    object: str = "list"
    data: list[ModelObject]


@router.get("/v1/models", responses=REFUSED)
async def list_models(request: Request) -> ModelList:
    """Every model that may be named."""
    return ModelList(data=[model_object(row) for row in await gateway_of(request).all_models()])


@router.get("/v1/models/{model_id}", responses=REFUSED)
async def retrieve_model(request: Request, model_id: str) -> ModelObject:
    """One model by its id."""
    for row in await gateway_of(request).all_models():
        if row.id == model_id:
            return model_object(row)
    raise NotFound(f"There is no model {model_id!r}.", code="model_not_found", param="model")


def model_object(row: ModelRow) -> ModelObject:
    """How a row of the catalog looks to OpenAI's clients."""
    return ModelObject(id=row.id, owned_by=row.provider, kind=row.kind)
