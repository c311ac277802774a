"""`WS /v1/realtime`: the handshake and what is refused there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from fastapi import APIRouter, WebSocket
from starlette.datastructures import Headers

from gateway.allowance import Allowance
from gateway.callers import who_asks
from gateway.catalog import Gateway
from gateway.errors import GatewayError, InvalidRequest, Unsupported
from wires.auth import credentials
from wires.client_keys import ClientKey, ClientKeys
from wires.openai.realtime.configuration import opened
from wires.openai.realtime.outgoing import Outgoing
from wires.openai.realtime.pump import Pump
from wires.openai.realtime.requests import target_of
from wires.openai.realtime.session import Opening, Session

router = APIRouter(tags=["OpenAI"])

SUBPROTOCOL = "realtime"
LIFETIME = 3600.0
"""Seconds that a session lasts."""
INTENTS = {"conversation": "realtime", "transcription": "transcription"}
HTTP_LIKE = 4000
"""Close codes of a refusal are its HTTP status above this: no official client tries again after one."""


@router.websocket("/v1/realtime")
async def serve(
    socket: WebSocket, model: str | None = None, intent: str | None = None, call_id: str | None = None
) -> None:
    """Serve one session until its client leaves."""
    # Only this name is ever selected: another element carries the key.
    offered = socket.scope.get("subprotocols", [])
    await socket.accept(subprotocol=SUBPROTOCOL if SUBPROTOCOL in offered else None)
    gateway: Gateway = socket.app.state.gateway
    try:
        if call_id is not None:
            raise Unsupported("Calls are not supported; connect with ?model=.", param="call_id")
        opening = await _opening(gateway, _given(model, intent, _client_key(socket.headers, gateway)))
    except GatewayError as error:
        out = Outgoing()
        out.error(error)
        for event in out.take():
            await socket.send_json(event)
        await socket.close(HTTP_LIKE + error.status, f"invalid_request_error.{error.code}")
        return
    await Pump(socket, gateway, Session(gateway, opening)).run()


def _client_key(headers: Headers, gateway: Gateway) -> ClientKey | None:
    keys = ClientKeys(gateway.settings)
    return next((key for value in credentials(headers) if (key := keys.read(value, time.time()))), None)


def _given(model: str | None, intent: str | None, key: ClientKey | None) -> Mapping[str, Any]:
    """What the client says of the session; what its secret says holds, whatever the address says."""
    if intent is not None and intent not in INTENTS:
        raise InvalidRequest(f"There is no intent {intent[:40]!r}; use 'transcription' or ?model=.", param="intent")
    return key.session if key is not None else {"type": INTENTS[intent or "conversation"], "model": model}


async def _opening(gateway: Gateway, given: Mapping[str, Any]) -> Opening:
    config = opened(given)
    target = await target_of(gateway, config, given.get("model"))
    standing = partial(_standing, gateway.allowance, who_asks().owner)
    clock = asyncio.get_running_loop().time
    return Opening(target.model.id, clock, int(time.time() + LIFETIME), LIFETIME, config, standing)


def _standing(allowance: Allowance, owner: str) -> list[dict[str, Any]]:
    """The limits of `owner`. What only a shared store knows is left out."""
    found = []
    for name in ("requests", "tokens"):
        if (standing := allowance.standing(name, owner)) is not None:
            limit = {
                "name": name,
                "limit": standing.limit,
                "remaining": standing.remaining,
                "reset_seconds": standing.reset_seconds,
            }
            found.append({field: value for field, value in limit.items() if value is not None})
    return found
