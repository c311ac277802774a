"""A voice on a socket under `bentoml serve` as it comes.

It makes its frames of 20 ms itself, with the referee's marks, or relays the audio of the API at `UPSTREAM`.
"""

from __future__ import annotations

import asyncio
import os
import time

import bentoml
from fastapi import FastAPI, WebSocket, WebSocketDisconnect
from openai import AsyncOpenAI

DIGITS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
FRAME_SECONDS = 0.02
SILENCE = bytes(960 - 16)
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
    due, number = time.monotonic(), 0
    while True:
        await asyncio.sleep(due - time.monotonic())
        await socket.send_bytes(mark(due, number) + SILENCE)
        due, number = due + FRAME_SECONDS, number + 1


async def _relay(socket: WebSocket, text: str) -> None:
    asked = client.audio.speech.with_streaming_response.create(
        model="tts-1", voice="alloy", input=text, response_format="pcm"
    )
    async with asked as response:
        async for piece in response.iter_bytes():
            await socket.send_bytes(piece)


def mark(due: float, number: int) -> bytes:
    """The referee's mark: a tilde, the time that it was due in nanoseconds and its number, both in base 64."""
    return b"~" + _digits(int(due * 1e9), 11) + _digits(number, 4)


def _digits(value: int, count: int) -> bytes:
    return bytes(DIGITS[value >> 6 * place & 63] for place in reversed(range(count)))


@bentoml.service()
@bentoml.asgi_app(app)
class PlainVoice:
    """Nothing but the socket."""
