"""The service with an echo beside its wires: most of Autobahn's cases want back what they have sent."""

from __future__ import annotations

from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from service import app, service

__all__ = ["service"]


async def echo(socket: WebSocket) -> None:
    await socket.accept()
    while (message := await socket.receive())["type"] == "websocket.receive":
        if message.get("text") is not None:
            await socket.send_text(message["text"])
        else:
            await socket.send_bytes(message["bytes"])


app.router.routes.insert(0, WebSocketRoute("/echo", echo))
