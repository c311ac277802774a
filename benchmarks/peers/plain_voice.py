"""A voice on a socket under `bentoml serve` as it comes.

It makes its frames of 20 ms itself, with the referee's marks, or relays the audio of the API at `UPSTREAM`.
"""

from __future__ import annotations

import os

import bentoml
from fastapi import FastAPI, WebSocket, WebSocketDisconnect
from openai import AsyncOpenAI

from benchmarks.peers.frames import frames

UPSTREAM = os.environ.get("UPSTREAM")
app = FastAPI()
client = AsyncOpenAI(base_url=UPSTREAM, api_key="none", max_retries=0)


@app.websocket("/ws")
async def speak(socket: WebSocket) -> None:
    """Send frames until the client leaves."""
    await socket.accept()
    text = await socket.receive_text()
    try:
        await (_relay(socket, text) if UPSTREAM else _make(socket))
    except (WebSocketDisconnect, RuntimeError):
        return


async def _make(socket: WebSocket) -> None:
    async for frame in frames():
        await socket.send_bytes(frame)


async def _relay(socket: WebSocket, text: str) -> None:
    asked = client.audio.speech.with_streaming_response.create(
        model="tts-1", voice="alloy", input=text, response_format="pcm"
    )
    async with asked as response:
        async for piece in response.iter_bytes():
            await socket.send_bytes(piece)


@bentoml.service()
@bentoml.asgi_app(app)
class PlainVoice:
    """Nothing but the socket."""
