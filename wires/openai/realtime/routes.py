"""`WS /v1/realtime`: the handshake and what is refused there."""

from __future__ import annotations

import asyncio
import time

from fastapi import APIRouter, WebSocket
from starlette.datastructures import Headers

from gateway.catalog import Gateway
from gateway.errors import GatewayError, Unsupported
from wires.auth import credentials
from wires.client_keys import ClientKey, ClientKeys
from wires.openai.realtime.configuration import SessionConfig
from wires.openai.realtime.outgoing import Outgoing
from wires.openai.realtime.pump import Pump
from wires.openai.realtime.session import Opening, Session

router = APIRouter(tags=["OpenAI"])

SUBPROTOCOL = "realtime"
LIFETIME = 3600.0
"""Seconds that a session lasts."""
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
        if intent not in (None, "conversation") or call_id is not None:
            raise Unsupported(
                "Transcription sessions and calls are not supported; connect with ?model=.", param="intent"
            )
        opening = await _opening(gateway, model, _client_key(socket.headers, gateway))
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


async def _opening(gateway: Gateway, model: str | None, key: ClientKey | None) -> Opening:
    """How the session begins. What a client secret says of the model holds, whatever the address says."""
    given = key.session if key is not None else {}
    target = await gateway.resolve(given.get("model") or model)
    config = SessionConfig().updated(given) if given else SessionConfig()
    clock = asyncio.get_running_loop().time
    return Opening(target.model.id, clock, int(time.time() + LIFETIME), LIFETIME, config)
