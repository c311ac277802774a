"""The WebSocket wire, `/ws`: bidirectional chat and audio. Bare texts are spoken, JSON messages do the rest."""

from __future__ import annotations

import re

from fastapi import APIRouter, WebSocket
from starlette.responses import JSONResponse, Response

from gateway.errors import GatewayError
from wires.base import Wire, retry_headers
from wires.websocket.connection import Connection
from wires.websocket.frames import error_frame

SUBPROTOCOL = "polywire.v1"

router = APIRouter(tags=["WebSocket"])


def error_response(error: GatewayError) -> Response:
    """A refused handshake, or a plain HTTP request to the socket's path."""
    return JSONResponse(error_frame(error), status_code=error.status, headers=retry_headers(error))


WIRE = Wire("ws", re.compile(r"/ws|/invocations-bidirectional-stream"), error_response)
ROUTERS = (router,)


@router.websocket("/invocations-bidirectional-stream")
async def serve_sagemaker(socket: WebSocket) -> None:
    """SageMaker's bidirectional container contract: the same messages, which its sidecar may send in binary frames."""
    await socket.accept()
    connection = Connection(socket, socket.app.state.gateway, WIRE.name, json_in_binary=True)
    await connection.run(format=None, voice=None)


@router.websocket("/ws")
async def serve(socket: WebSocket, format: str | None = None, voice: str | None = None) -> None:
    """Serve one client until it leaves. `format` and `voice` hold for bare texts."""
    # Only our own name is ever selected: another element may carry the key.
    offered = socket.scope.get("subprotocols", [])
    await socket.accept(subprotocol=SUBPROTOCOL if SUBPROTOCOL in offered else None)
    await Connection(socket, socket.app.state.gateway, WIRE.name).run(format=format, voice=voice)
