"""`GET urls.stream`: a prediction's events, for whoever holds its URL, from the first or after `Last-Event-ID`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from gateway.errors import GatewayError
from gateway.events import StreamEvent
from gateway.prediction import Prediction
from gateway.predictions import Predictions
from wires.base import StreamResponse, gateway_of
from wires.documents import answers
from wires.replicate.encoder import KEEPALIVE, EventEncoder
from wires.replicate.errors import REFUSALS, WIRE

router = APIRouter(tags=["Replicate"], responses=REFUSALS)

CORS = {
    "access-control-allow-origin": "*",
    "access-control-allow-headers": "authorization, cache-control, last-event-id",
    "access-control-allow-methods": "GET",
    "access-control-max-age": "86400",
}
HEADERS = CORS | {"cache-control": "no-store", "x-accel-buffering": "no"}
EVENT_STREAM = "text/event-stream; charset=utf-8"
OVER: dict[int | str, dict[str, Any]] = {204: {"description": "The reader has every event already."}}
TIMED_OUT = b":408: 408 Request Timeout\n\n"


@router.get("/v1/streams/{token}", response_class=Response, responses=answers("text/event-stream") | OVER)
async def stream(request: Request, token: str) -> Response:
    """The events of the prediction that `token` opens; the comment `:408:` when there is none any more."""
    prediction = await predictions_of(request).with_token(token)
    if prediction is None or prediction.kind != "chat":
        return Response(TIMED_OUT, media_type=EVENT_STREAM, headers=HEADERS)
    return await stream_response(request, prediction)


@router.options("/v1/streams/{token}", status_code=204, response_class=Response)
async def preflight(token: str) -> Response:
    """Any page may read a stream whose URL it knows."""
    return Response(status_code=204, headers=CORS)


async def stream_response(request: Request, prediction: Prediction) -> Response:
    """The events after `Last-Event-ID`. After the last one there is nothing to come: 204 ends a browser's reconnecting.

    An id that is not this prediction's means the start, which loses nothing.
    """
    predictions = predictions_of(request)
    created = int(prediction.created_at)
    after = _last_event(request.headers.get("last-event-id", ""), created)
    if after >= 0:
        seen = EventEncoder(created)
        for event in await predictions.recorded(prediction):
            for _ in seen.encode(event):
                pass
        if prediction.over and after == seen.count - 1:
            return Response(status_code=204, headers=CORS)
        after = after if after < seen.count else -1
    encoder = EventEncoder(created, after)

    @asynccontextmanager
    async def follow() -> AsyncIterator[AsyncIterator[StreamEvent]]:
        async with predictions.follow(prediction) as events:
            yield _interrupting(events, encoder)

    return StreamResponse(
        WIRE,
        follow,
        encoder,
        limits=gateway_of(request).settings.limits,
        media_type=EVENT_STREAM,
        headers=HEADERS,
        keepalive=KEEPALIVE,
    )


def predictions_of(request: Request) -> Predictions:
    """The predictions that the application serves."""
    found: Predictions = request.app.state.predictions
    return found


async def _interrupting(events: AsyncIterator[StreamEvent], encoder: EventEncoder) -> AsyncIterator[StreamEvent]:
    try:
        async for event in events:
            yield event
    except GatewayError:
        encoder.interrupt()
        raise


def _last_event(id: str, created: int) -> int:
    prefix, _, place = id.partition(":")
    number = place.partition(".")[0]
    return int(number) if prefix == str(created) and number.isdecimal() and len(number) < 10 else -1
