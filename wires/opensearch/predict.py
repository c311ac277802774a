"""`models/{id}/_predict` and `_predict/stream`. The body is read whole, however it was cut."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from gateway.completion import collect
from gateway.errors import InvalidRequest
from wires.base import StreamResponse
from wires.chat_answer import completion_body
from wires.documents import answers, fields, takes
from wires.opensearch.bodies import answer, check_parameters, read_object
from wires.opensearch.encoder import FrameEncoder
from wires.opensearch.errors import REFUSALS, WIRE, error_frame, illegal_argument, illegal_state
from wires.opensearch.filtering import Absent, pick
from wires.opensearch.paths import ID
from wires.opensearch.streams import (
    UNFIT_INTERFACE,
    StreamPool,
    chat_request,
    connector_parameters,
    find_target,
    streamed_request,
)

STREAM_HEADERS = {"content-type": "text/event-stream", "cache-control": "no-cache", "connection": "keep-alive"}
"""ML Commons gives no charset; clients that look at the type look for just this."""
KEEPALIVE = b":\n\n"
PARAMETERS = fields("parameters", parameters="object")
STREAMING_OFF = (
    'Streaming is currently disabled. To enable it, update the setting "plugins.ml_commons.stream_enabled" to true.'
)
router = APIRouter(
    prefix="/_plugins/_ml/models", tags=["OpenSearch"], dependencies=[Depends(check_parameters)], responses=REFUSALS
)


@router.post(
    ID + "/_predict/stream",
    response_class=Response,
    responses=answers("text/event-stream"),
    openapi_extra=takes(PARAMETERS),
)
async def predict_stream(request: Request, id: str) -> Response:
    """Stream an answer as server-sent events."""
    pool: StreamPool = request.app.state.ml_streams
    settings = pool.gateway.settings
    if not settings.connectors.stream_enabled:
        raise illegal_state(STREAMING_OFF)
    body = await read_object(request)
    target = await find_target(pool.gateway, id)
    if str(body.get("action_type", "predict")).lower() == "batch_predict":
        raise illegal_state("Streaming is not supported for batch predict.")
    try:
        chat = streamed_request(target, _parameters(body))
    except InvalidRequest as error:
        if error.code != UNFIT_INTERFACE:
            raise
        # The one refusal that clients know as a frame.
        return Response(error_frame(error), headers=STREAM_HEADERS)
    return StreamResponse(
        WIRE,
        lambda: pool.chat(chat, wire=WIRE.name),
        FrameEncoder(),
        limits=settings.limits,
        headers=STREAM_HEADERS,
        keepalive=KEEPALIVE,
    )


@router.post(ID + "/_predict", openapi_extra=takes(PARAMETERS))
async def predict(request: Request, id: str) -> Response:
    """The whole answer: a remote service's own JSON, or a chat completion of a configured model."""
    pool: StreamPool = request.app.state.ml_streams
    parameters = _parameters(await read_object(request))
    target = await find_target(pool.gateway, id)
    if target.connector is not None:
        texts = connector_parameters(parameters)
        value = await pool.gateway.ask(target.connector, texts, wire=WIRE.name, model=id)
        path = texts.get("response_filter", (target.connector.parameters or {}).get("response_filter"))
    else:
        async with pool.chat(chat_request(target, parameters), wire=WIRE.name) as events:
            value = completion_body(await collect(events))
        path = parameters.get("response_filter")
    output = {"name": "response", "dataAsMap": _map(_filtered(value, path))}
    return answer(request, {"inference_results": [{"output": [output], "status_code": 200}]})


def _parameters(body: dict[str, Any]) -> dict[str, Any]:
    parameters = body.get("parameters")
    if not isinstance(parameters, dict):
        raise illegal_argument("Request body must have parameters")
    return parameters


def _filtered(value: Any, path: Any) -> Any:
    """What the response filter leaves; everything when it finds nothing."""
    try:
        return pick(path, value) if isinstance(path, str) else value
    except Absent:
        return value


def _map(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {"response": value}
