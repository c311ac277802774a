"""Create, read, list and cancel predictions."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.responses import Response

from gateway.catalog import Gateway
from gateway.config import ModelRow
from gateway.prediction import Prediction
from gateway.run import Stream
from gateway.telemetry import current_request
from wires.base import gateway_of, owner_of
from wires.documents import JSON, answers, fields, takes
from wires.replicate.errors import REFUSALS, WIRE, JsonResponse, invalid
from wires.replicate.inputs import (
    WEBHOOK_EVENTS,
    CreateBody,
    parse_body,
    parse_chat,
    parse_duration,
    parse_speech,
    parse_wait,
)
from wires.replicate.objects import base_url, prediction_object, unstarted_object
from wires.replicate.output import output_of
from wires.replicate.schema import HIDDEN_VERSION, find_model, find_version, version_id
from wires.replicate.streams import predictions_of, stream_response
from wires.replicate.webhooks import webhooks_of

router = APIRouter(tags=["Replicate"], responses=REFUSALS)
PAGE = 100
PREDICTION = fields("id", "status", "urls", id="string", status="string", urls="object")
INPUT = fields("input", input="object")
CREATED = answers(JSON, status=201, schema=PREDICTION)
VERSION_AND_INPUT = fields("version", "input", version="string", input="object")


@router.post("/v1/models/{owner}/{name}/predictions", status_code=201, responses=CREATED, openapi_extra=takes(INPUT))
async def create_by_model(request: Request, owner: str, name: str) -> Response:
    """Run an official model: one named without a version."""
    body = parse_body(await request.body())
    return await _create(request, body, await find_model(gateway_of(request), f"{owner}/{name}"), HIDDEN_VERSION)


@router.post(
    "/v1/deployments/{owner}/{name}/predictions", status_code=201, responses=CREATED, openapi_extra=takes(INPUT)
)
async def create_by_deployment(request: Request, owner: str, name: str) -> Response:
    """Run a deployment: here every model is its own."""
    body = parse_body(await request.body())
    row = await find_model(gateway_of(request), f"{owner}/{name}")
    return await _create(request, body, row, version_id(row), deployment=row.id)


@router.post("/v1/predictions", status_code=201, responses=CREATED, openapi_extra=takes(VERSION_AND_INPUT))
async def create_by_version(request: Request) -> Response:
    """Run the model that `version` names: `owner/name`, `owner/name:version` or a version id."""
    body = parse_body(await request.body())
    if not body.version:
        raise invalid("version is required.", "version")
    row = await find_version(gateway_of(request), body.version)
    return await _create(request, body, row, version_id(row))


@router.get("/v1/predictions")
async def list_predictions(request: Request, cursor: str | None = None) -> Response:
    """The caller's predictions, newest first, in pages; a voice's audio is left out where it is no URL."""
    predictions, base = predictions_of(request), base_url(request)
    found = await predictions.list(owner_of(request), limit=PAGE + 1, before=cursor)
    page = found[:PAGE]
    following = None
    if len(found) > PAGE:
        following = f"{base}/v1/predictions?{urlencode({'cursor': page[-1].id})}"
    results = [await _object(request, prediction, listed=True) for prediction in page]
    return JsonResponse({"previous": None, "next": following, "results": results})


@router.get("/v1/predictions/{id}", responses=answers(JSON, "text/event-stream", schema=PREDICTION))
async def get_prediction(request: Request, id: str) -> Response:
    """A prediction with its output so far, or its event stream for a reader who asks for that."""
    prediction = await predictions_of(request).get(id, owner_of(request))
    if prediction.kind == "chat" and "text/event-stream" in request.headers.get("accept", ""):
        return await stream_response(request, prediction)
    return JsonResponse(await _object(request, prediction))


@router.post("/v1/predictions/{id}/cancel", responses=answers(JSON, schema=PREDICTION))
async def cancel_prediction(request: Request, id: str) -> Response:
    """Stop a prediction; one that is over is given as it is."""
    return JsonResponse(await _object(request, await predictions_of(request).cancel(id, owner_of(request))))


async def _create(
    request: Request, body: CreateBody, row: ModelRow, version: str, deployment: str | None = None
) -> Response:
    """Begin a prediction, and answer at once or, with `Prefer: wait`, when it is over."""
    began = asyncio.get_running_loop().time()
    wait = parse_wait(request.headers.get("prefer", ""))
    prediction = await _begin(request, body, row, {"version": version, "deployment": deployment})
    base = base_url(request)
    headers = {"location": f"{base}/v1/predictions/{prediction.id}"}
    if wait is not None:
        headers["preference-applied"] = f"wait={wait}"
        left = wait - (asyncio.get_running_loop().time() - began)
        if await predictions_of(request).ended(prediction.id, left):
            ended = await predictions_of(request).get(prediction.id, owner_of(request))
            if ended.over:
                return JsonResponse(await _object(request, ended), 201, headers)
    return JsonResponse(unstarted_object(prediction, base), 201, headers)


async def _begin(request: Request, body: CreateBody, row: ModelRow, notes: dict[str, Any]) -> Prediction:
    """The prediction that `body` asks for, running. Raises GatewayError before anything is asked of the provider."""
    cancel_after = parse_duration(request.headers.get("cancel-after", ""))
    webhook = body.webhook or body.webhook_completed
    if webhook:
        await webhooks_of(request).check(webhook)
    await gateway_of(request).demand_room()
    hook = {"webhook": webhook, "webhook_events_filter": _webhook_events(body)}
    prediction = await predictions_of(request).create(
        _stream(gateway_of(request), body, row),
        owner=owner_of(request),
        model=row.id,
        kind=row.kind,
        input=body.input,
        notes={**notes, "base": base_url(request), **hook},
        deadline=None if cancel_after is None else time.time() + cancel_after,
    )
    if (scope := current_request.get()) is not None:
        scope.deferred = True
    return prediction


def _stream(gateway: Gateway, body: CreateBody, row: ModelRow) -> Stream:
    """What the model or the voice of `row` answers, to be opened by the prediction."""
    if row.kind == "speech":
        return gateway.speech(parse_speech(row.id, body.input), wire=WIRE.name)
    return gateway.chat(parse_chat(row.id, body.input), wire=WIRE.name)


def _webhook_events(body: CreateBody) -> list[str]:
    if body.webhook is None:
        return ["completed"]
    return list(WEBHOOK_EVENTS if body.webhook_events_filter is None else body.webhook_events_filter)


async def _object(request: Request, prediction: Prediction, *, listed: bool = False) -> dict[str, Any]:
    base = base_url(request)
    output = await output_of(predictions_of(request), prediction, base, listed=listed)
    return prediction_object(prediction, output, base)
