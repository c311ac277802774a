"""A service for the playground's tests: `GET /v1/models` and `/ws`, whose answers follow the model's name.

It keeps INTERFACE section 5 to the letter, late frames after a cancel included, and records what the page sent.
"""

from __future__ import annotations

import asyncio
import json
import math
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response, WebSocket, WebSocketDisconnect
from fastapi.responses import JSONResponse

from wires.playground import router

RATE = 24_000
FRAME_SECONDS = 0.1
CHAT_MODELS = ("default", "markup", "endless", "failing", "refusing", "thinking", "unbroken", "hangup")
MARKUP = '<img src=x onerror="document.title=1"><script>document.title=2</script><b>bold</b> & &amp; 안녕 👋🏽'
ANSWER = (
    "Streaming means that an answer is sent while it is still being written. Each word leaves the model, crosses one "
    "connection and reaches you at once, instead of waiting for the last word. You start to read, or to listen, within "
    "a fraction of a second."
)


class ScriptedService:
    """The app, the address it serves on, and the messages it received."""

    def __init__(self, key: str = "", token_seconds: float = 0.03) -> None:
        self.key = key
        self.token_seconds = token_seconds
        self.received: list[dict[str, Any]] = []
        self.protocols: list[str] = []
        self.base_url = ""
        self.app = FastAPI()
        self.app.include_router(router)
        self.app.add_api_route("/v1/models", self._models)
        self.app.add_api_websocket_route("/ws", self._socket)

    def _models(self, request: Request) -> Response:
        if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
            error = {
                "message": "This service needs an API key.",
                "type": "invalid_request_error",
                "code": "unauthorized",
            }
            return JSONResponse({"error": error}, status_code=401)
        kinds = [*((name, "chat") for name in CHAT_MODELS), ("voice", "speech"), ("deep-voice", "speech")]
        kinds.append(("transcriber", "transcription"))
        rows = [{"id": name, "object": "model", "created": 0, "owned_by": "test", "kind": kind} for name, kind in kinds]
        return JSONResponse({"object": "list", "data": rows})

    async def _socket(self, socket: WebSocket) -> None:
        offered = socket.scope["subprotocols"]
        self.protocols = offered
        if self.key and f"openai-insecure-api-key.{self.key}" not in offered:
            await socket.send_denial_response(JSONResponse({"error": {"message": "no key"}}, status_code=401))
            return
        await socket.accept("polywire.v1")
        await _Connection(socket, self).run()


class _Connection:
    def __init__(self, socket: WebSocket, service: ScriptedService) -> None:
        self.socket = socket
        self.service = service
        self.turn: asyncio.Task[None] | None = None

    async def run(self) -> None:
        try:
            while True:
                message = json.loads(await self.socket.receive_text())
                self.service.received.append(message)
                await self._obey(message)
        except WebSocketDisconnect:
            pass
        finally:
            await self._end_turn()

    async def _obey(self, message: dict[str, Any]) -> None:
        match message["type"]:
            case "ping":
                await self.socket.send_json({"type": "pong"})
            case "cancel":
                if not self._is_running():
                    await self.socket.send_json({"type": "warning", "message": "There is nothing to cancel."})
                await self._end_turn()
            case "chat" | "speak":
                if self._is_running() and not message.get("interrupt"):
                    await self.socket.send_json(_error(message["id"], "turn_active", 409, "A turn is running."))
                    return
                await self._end_turn()
                self.turn = asyncio.create_task(_Turn(self.socket, self.service, message).run())

    def _is_running(self) -> bool:
        return self.turn is not None and not self.turn.done()

    async def _end_turn(self) -> None:
        if self.turn is not None:
            self.turn.cancel()
            with suppress(asyncio.CancelledError, WebSocketDisconnect, RuntimeError):
                await self.turn


class _Turn:
    def __init__(self, socket: WebSocket, service: ScriptedService, message: dict[str, Any]) -> None:
        self.socket = socket
        self.service = service
        self.message = message
        self.model = message.get("model", "default")
        self.speaks = message["type"] == "speak" or message.get("speak", False)
        self.seq = count()
        self.samples = count()

    async def run(self) -> None:
        try:
            await self._play()
        except asyncio.CancelledError:
            # What was on its way when the cancel came; nothing of the turn may follow `finished`.
            if self.speaks:
                await self._audio(3)
            await self._send("finished", reason="cancelled", usage={"input_tokens": 4, "output_tokens": 1}, timings={})
            raise

    async def _play(self) -> None:
        if self.model == "refusing":
            error = _error(
                self.message["id"], "upstream_unavailable", 503, "The provider 'local' has no free place.", True
            )
            await self.socket.send_json({**error, "seq": 0})
            return
        await self._send("started", model=self.model)
        if self.speaks:
            audio = {"encoding": "pcm_s16le", "rate": RATE, "channels": 1}
            await self._send("audio", format=audio)
        if self.model == "thinking":
            await self._send("reasoning", text="The user greets; ")
            await self._send("reasoning", text="<i>greet back</i>.")
            await self._send("tool_call", index=0, call_id="call-1", name="weather", arguments='{"city": ')
            await self._send("tool_call", index=0, call_id="call-1", name="weather", arguments='"Seoul"}')
        tokens = 0
        async for token in self._tokens():
            tokens += 1
            if self.message["type"] == "chat":
                await self._send("text", text=token)
            if self.speaks:
                await self._audio(1)
            if tokens == 3 and self.model == "failing":
                sentence = "The provider 'local' ended its answer before it was complete."
                error = _error(self.message["id"], "upstream_truncated", 502, sentence)
                await self.socket.send_json({**error, "seq": next(self.seq)})
                return
            if tokens == 3 and self.model == "hangup":
                await self.socket.close(1012)
                return
        timings = {"ttft_ms": 21, "ttfa_ms": 48 if self.speaks else None, "total_ms": 640}
        await self._send("finished", reason="stop", usage={"input_tokens": 4, "output_tokens": tokens}, timings=timings)

    async def _tokens(self) -> AsyncIterator[str]:
        text = self.message.get("text", "")
        scripts = {"markup": MARKUP, "unbroken": "a" * 400, "default": ANSWER}
        pieces = pieces_of(scripts.get(self.model, f"You said: {text}. That is all."))
        endless: Iterator[str] = (f"word {number} " for number in count())
        for piece in endless if self.model == "endless" else pieces:
            await asyncio.sleep(self.service.token_seconds)
            yield piece

    async def _send(self, kind: str, **fields: Any) -> None:
        await self.socket.send_json({"type": kind, "id": self.message["id"], "seq": next(self.seq), **fields})

    async def _audio(self, frames: int) -> None:
        for _ in range(frames):
            wave = (sample_at(next(self.samples)) for _ in range(int(RATE * FRAME_SECONDS)))
            await self.socket.send_bytes(b"".join(struct.pack("<h", sample) for sample in wave))


def sample_at(number: int) -> int:
    """The sample at this place of a turn: a tone of 220 Hz."""
    return round(9000 * math.sin(2 * math.pi * 220 * number / RATE))


def pieces_of(text: str) -> list[str]:
    """`text` cut into tokens of a few characters."""
    return [text[start : start + 6] for start in range(0, len(text), 6)]


def _error(turn: str, code: str, status: int, message: str, retryable: bool = False) -> dict[str, Any]:
    return {"type": "error", "id": turn, "code": code, "status": status, "message": message, "retryable": retryable}


@contextmanager
def serving(service: ScriptedService) -> Iterator[ScriptedService]:
    """Serve `service.app` on a free port of the loopback, in a thread, until the block ends."""
    server = uvicorn.Server(
        uvicorn.Config(service.app, host="127.0.0.1", port=0, log_level="error", timeout_graceful_shutdown=1)
    )
    started = threading.Event()
    startup = server.startup

    async def announced(*arguments: Any, **named: Any) -> None:
        await startup(*arguments, **named)
        started.set()

    server.startup = announced  # type: ignore[method-assign]  # uvicorn has no hook that says when it listens
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        assert started.wait(10), "the scripted service did not start"
        service.base_url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        yield service
    finally:
        server.should_exit = True
        thread.join(10)
