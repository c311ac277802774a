"""`/v1/responses`: create, retrieve (also as a stream that goes on where a client lost it), delete.

A response is kept for `limits.prediction_ttl_seconds` unless it was asked not to be, and exists only for the key that
made it. It belongs to its connection: a client that leaves cancels it. `background` is refused, so nothing can be
cancelled by request.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from gateway.errors import InvalidRequest, NotFound
from gateway.events import Failed, StreamEvent
from gateway.responses import KeptResponse, Responses
from wires.base import StreamResponse, gateway_of, owner_of
from wires.openai.errors import KEEPALIVE, WIRE, JsonBody, documented, object_schema
from wires.openai.responses.encoder import ResponseEncoder
from wires.openai.responses.items import Item
from wires.openai.responses.request import ENCRYPTED, ResponseBody, parse, template
from wires.openai.whole import billed

router = APIRouter(tags=["OpenAI"])
PREFIX = "resp_"
NO_FRAMES = sys.maxsize
ANSWER = object_schema("response", "id", "created_at", "model", "output", "status")
DELETED = object_schema("response", "id", "deleted")


@router.post("/v1/responses", responses=documented(ANSWER, streams=True))
async def create(request: Request, body: ResponseBody) -> Response:
    """Stream a response, or give it whole."""
    gateway, responses, owner = gateway_of(request), _responses(request), owner_of(request)
    history = await _history(responses, body.previous_response_id, owner)
    chat = parse(body, history)
    encrypted = ENCRYPTED in (body.include or ())
    shown = template(body)
    content = {"template": shown, "encrypted": encrypted, "input": [*history, *body.items]}

    def opened() -> AbstractAsyncContextManager[AsyncIterator[StreamEvent]]:
        stream = gateway.chat(chat, wire=WIRE.name)
        return responses.keep(stream, owner=owner, content=content) if body.kept else stream

    if body.stream:
        encoder = ResponseEncoder(shown, encrypted=encrypted)
        return StreamResponse(WIRE, opened, encoder, limits=gateway.settings.limits, keepalive=KEEPALIVE)
    async with opened() as events:
        with billed():
            return JsonBody(await _folded(events, ResponseEncoder(shown, encrypted=encrypted, after=NO_FRAMES)))


@router.get("/v1/responses/{response_id}", responses=documented(ANSWER, streams=True))
async def retrieve(
    request: Request,
    response_id: str,
    stream: bool = False,
    starting_after: Annotated[int | None, Query(ge=0)] = None,
) -> Response:
    """A kept response, or its events after number `starting_after`, also while it is still being given."""
    responses = _responses(request)
    kept = await _kept(request, response_id)
    if not stream:
        if starting_after is not None:
            raise InvalidRequest("starting_after is only allowed with stream=true.", param="starting_after")
        return JsonBody(await _shown(responses, kept, encrypted=kept.content["encrypted"]))
    after = -1 if starting_after is None else starting_after
    return StreamResponse(
        WIRE,
        lambda: responses.follow(kept.id),
        ResponseEncoder(kept.content["template"], encrypted=kept.content["encrypted"], after=after),
        limits=gateway_of(request).settings.limits,
        keepalive=KEEPALIVE,
    )


@router.delete("/v1/responses/{response_id}", responses=documented(DELETED))
async def delete(request: Request, response_id: str) -> Response:
    """Forget a kept response."""
    kept = await _kept(request, response_id)
    await _responses(request).delete(kept.id, owner_of(request))
    return JsonBody({"id": response_id, "object": "response", "deleted": True})


@router.post("/v1/responses/{response_id}/cancel", responses=documented(ANSWER))
async def cancel(request: Request, response_id: str) -> Response:
    """Refused: only background responses could be cancelled."""
    await _kept(request, response_id)
    raise InvalidRequest(
        "Only background responses can be cancelled by request; this one is when its client hangs up.",
        code="not_in_background",
    )


def _responses(request: Request) -> Responses:
    responses: Responses = request.app.state.responses
    return responses


async def _kept(request: Request, response_id: str) -> KeptResponse:
    try:
        return await _responses(request).get(response_id.removeprefix(PREFIX), owner_of(request))
    except NotFound as error:
        error.code, error.param = "response_not_found", "response_id"
        raise


async def _history(responses: Responses, previous_id: str | None, owner: str) -> list[Item]:
    """Every item of the turns before, input and output. Raises NotFound, InvalidRequest while the last still runs."""
    if previous_id is None:
        return []
    try:
        kept = await responses.get(previous_id.removeprefix(PREFIX), owner)
    except NotFound as error:
        error.code, error.param = "previous_response_not_found", "previous_response_id"
        raise
    shown = await _shown(responses, kept, encrypted=True)
    if shown["status"] == "in_progress":
        raise InvalidRequest("The previous response has not ended yet.", param="previous_response_id")
    return [*kept.content["input"], *shown["output"]]


async def _shown(responses: Responses, kept: KeptResponse, *, encrypted: bool) -> dict[str, Any]:
    """The response object as its events so far make it."""
    encoder = ResponseEncoder(kept.content["template"], encrypted=encrypted, after=NO_FRAMES)
    async with aclosing(responses.so_far(kept.id)) as events:
        return await _folded(events, encoder, failed=True)


async def _folded(
    events: AsyncIterator[StreamEvent], encoder: ResponseEncoder, *, failed: bool = False
) -> dict[str, Any]:
    """The response object after `events`. Raises a failure's error, unless a `failed` one is to be shown."""
    async for event in events:
        for _ in encoder.encode(event):
            pass
        if isinstance(event, Failed) and not failed:
            raise event.error
    return encoder.response()
