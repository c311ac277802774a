"""bentoml, websockets and replicate-python: the wires whose answers are text alone or messages."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import httpx
from bentoml.exceptions import BentoMLException
from replicate.exceptions import ReplicateError
from websockets.asyncio.client import connect

from tests.contract.wires import NO_USAGE
from tests.matrix.client import Ask, Client, Counted, Question, Said, Told
from tests.matrix.desk import Desk

STATUSES = {429: 429, 400: 400, 502: 502}
U = {"u": NO_USAGE["usage"]}


async def generate(desk: Desk, question: Question) -> AsyncGenerator[Said, None]:
    try:
        async for piece in desk.bento.generate(prompt=question.prompt, model=question.model):
            yield piece
    except BentoMLException as error:
        raise Told(error.error_code.value, json.loads(str(error))["error"]) from error
    except httpx.RemoteProtocolError as error:
        raise Told("broken body") from error


def on_socket(path: str) -> Ask:
    async def turn(desk: Desk, question: Question) -> AsyncGenerator[Said, None]:
        async with connect(desk.service.ws_url + path) as socket:
            await socket.send(json.dumps({"type": "chat", "model": question.model, "text": question.prompt}))
            async for received in socket:
                message = json.loads(received)
                match message["type"]:
                    case "text":
                        yield message["text"]
                    case "error":
                        raise Told(message["status"], message["message"])
                    case "finished":
                        assert message["reason"] == "stop"
                        if message["usage"]:
                            yield Counted(message["usage"]["input_tokens"], message["usage"]["output_tokens"])
                        return

    return turn


async def prediction(desk: Desk, question: Question) -> AsyncGenerator[Said, None]:
    """Closed early, it cancels: a reader that leaves changes nothing, and the verb is what this client has."""
    made = await _predicted(desk, question)
    last = None
    try:
        async for event in made.async_stream():
            last = event
            yield str(event)
    except RuntimeError as error:
        raise Told("failed", json.loads(str(error))["detail"]) from error
    except GeneratorExit:
        await made.async_cancel()
        assert made.status == "canceled"
        raise
    assert last is not None
    assert (last.event.value, last.data) == ("done", "{}")


async def _predicted(desk: Desk, question: Question) -> Any:
    """By the model's name where it has the two parts of one, else by its version."""
    given: Any = {"input": {"prompt": question.prompt}, "stream": True}
    try:
        if question.owner is not None:
            name = f"{question.owner}/{question.model}"
            return await desk.replicate.models.predictions.async_create(name, **given)
        return await desk.replicate.predictions.async_create(version=question.model, **given)
    except ReplicateError as error:
        raise Told(error.status, error.detail or "") from error


CLIENTS = (
    Client("`/generate`: bentoml", "generate", generate, STATUSES, "broken body", wordless=True, cannot=U),
    Client("`/ws`: websockets", "ws", on_socket("/ws"), STATUSES, 502),
    Client(
        "`/invocations-bidirectional-stream`: websockets",
        "ws",
        on_socket("/invocations-bidirectional-stream"),
        STATUSES,
        502,
    ),
    Client(
        "Replicate predictions and streams: replicate-python",
        "replicate",
        prediction,
        dict.fromkeys(STATUSES, "failed"),
        "failed",
        cannot=U,
    ),
)
