"""The clients of voices: openai-python, and a socket."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator

import httpx2
import openai
from websockets.asyncio.client import connect

from tests.matrix.client import Client, Question, Said, Told
from tests.matrix.desk import Desk
from tests.matrix.openai_clients import STATUSES, told

NO_COUNT = {"u": "a voice counts no tokens"}


async def speech(desk: Desk, question: Question) -> AsyncGenerator[Said, None]:
    try:
        async with desk.openai.audio.speech.with_streaming_response.create(
            model=question.model, voice="alloy", input=question.prompt, response_format="pcm"
        ) as answer:
            async for piece in answer.iter_bytes():
                yield piece
    except openai.APIStatusError as error:
        raise told(error) from error
    except httpx2.RemoteProtocolError as error:
        raise Told("broken body") from error


async def spoken(desk: Desk, question: Question) -> AsyncGenerator[Said, None]:
    async with connect(f"{desk.service.ws_url}/ws", max_queue=None) as socket:
        message = {"type": "speak", "text": question.prompt, "voice": question.model, "format": "pcm"}
        await socket.send(json.dumps(message))
        async for received in socket:
            if isinstance(received, bytes):
                yield received
                continue
            event = json.loads(received)
            if event["type"] == "error":
                raise Told(event["status"], event["message"])
            if event["type"] == "finished":
                assert event["reason"] == "stop"
                return


CLIENTS = (
    Client(
        "`/v1/audio/speech`: openai-python",
        "openai",
        speech,
        STATUSES,
        "broken body",
        kind="speech",
        wordless=True,
        cannot=NO_COUNT,
    ),
    Client("`/ws`, `speak`: websockets", "ws", spoken, STATUSES, 502, kind="speech", cannot=NO_COUNT),
)
