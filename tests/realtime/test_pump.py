"""The pump: how sessions end, and what it does when a model's context is full."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from starlette.types import Message

from adapters.scripted import ScriptedChat, ScriptedSpeech, Step
from gateway.catalog import Gateway
from gateway.config import Kind, Limits, ModelRow, ProviderRow, Settings
from gateway.errors import ContextLengthExceeded
from gateway.events import Delta, Finished, FinishReason, TextDelta
from gateway.ports import Provider
from gateway.request import ChatRequest
from tests.realtime.line import Line, serve

ROW = ProviderRow(name="script", type="scripted")
ANSWER: list[Step] = [TextDelta("Hello there. "), Finished(FinishReason.STOP)]
ENDLESS: list[Step] = [TextDelta("One. "), *(step for _ in range(10_000) for step in (0.001, TextDelta("More. ")))]


class Forgetful(ScriptedChat):
    """Takes one message at most."""

    requests: list[ChatRequest]

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | Finished, None]:
        self.requests.append(request)
        if len(request.messages) > 1:
            raise ContextLengthExceeded("Too long.")
        async for event in super().stream(request):
            yield event


def gateway(steps: list[Step] = ANSWER, **limits: Any) -> tuple[Gateway, Forgetful]:
    models = (
        ModelRow(id="default", provider="script", upstream="answer"),
        ModelRow(id="voice", provider="script", upstream="tone", kind="speech"),
    )
    settings = Settings(providers=(ROW,), models=models, limits=Limits(**limits))
    chat = Forgetful(ROW, settings, {"answer": steps})
    chat.requests = []

    def build(row: ProviderRow, kind: Kind, settings: Settings) -> Provider:
        return chat if kind == "chat" else ScriptedSpeech(row, settings)

    return Gateway(settings, build), chat


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


async def test_the_oldest_turns_are_forgotten_when_the_context_is_full() -> None:
    opened, chat = gateway()
    line = Line()
    serving = await serve(line, opened, output_modalities=["text"])
    for text in ("one", "two", "three"):
        line.say(type="conversation.item.create", item=user(text))
    line.say(type="response.create")
    await asyncio.wait_for(line.done.wait(), 5)
    assert line.events[-1]["response"]["status"] == "completed"
    assert [len(request.messages) for request in chat.requests] == [3, 2, 1]
    assert chat.requests[-1].messages[0].text == "three"
    line.hang_up()
    await serving


async def test_nothing_is_forgotten_against_the_clients_wish() -> None:
    opened, chat = gateway()
    line = Line()
    serving = await serve(line, opened, output_modalities=["text"], truncation="disabled")
    for text in ("one", "two"):
        line.say(type="conversation.item.create", item=user(text))
    line.say(type="response.create")
    await asyncio.wait_for(line.done.wait(), 5)
    error = line.events[-1]["response"]["status_details"]["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "context_length_exceeded")
    assert len(chat.requests) == 1
    line.hang_up()
    await serving


async def test_a_silent_client_is_let_go() -> None:
    line = Line()
    await asyncio.wait_for(await serve(line, gateway(socket_idle_seconds=0.05)[0]), 5)
    assert line.closed == 4408


async def test_a_session_ends_with_its_lifetime() -> None:
    line = Line()
    await asyncio.wait_for(await serve(line, gateway()[0], lifetime=0.05), 5)
    assert line.events[-1]["error"]["code"] == "session_expired"
    assert line.closed == 1000


@pytest.mark.parametrize("modality", ["text", "audio"])
async def test_a_client_that_takes_nothing_is_let_go_and_its_stream_closed(modality: str) -> None:
    opened, chat = gateway(ENDLESS, send_stall_seconds=0.1)
    line = Line()
    stuck = asyncio.Event()

    async def send(message: Message) -> None:
        if "response.created" in message.get("text", ""):
            stuck.set()
        if stuck.is_set():
            await asyncio.Event().wait()

    line.answer = send
    serving = await serve(line, opened, output_modalities=[modality])
    line.say(type="conversation.item.create", item=user("one"))
    line.say(type="response.create")
    await asyncio.wait_for(serving, 5)
    assert (chat.opened, chat.closed) == (1, 1)


async def test_leaving_closes_the_stream() -> None:
    opened, chat = gateway(ENDLESS)
    line = Line()
    serving = await serve(line, opened)
    line.say(type="conversation.item.create", item=user("one"))
    line.say(type="response.create")
    while not any(event["type"] == "response.output_audio.delta" for event in line.events):
        await asyncio.wait_for(line.said.wait(), 5)
        line.said.clear()
    line.hang_up()
    await asyncio.wait_for(serving, 5)
    assert (chat.opened, chat.closed) == (1, 1)
