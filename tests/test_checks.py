"""What no upstream can be sent is refused as the caller's, before a provider is asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from adapters import build
from gateway.catalog import Gateway
from gateway.config import ModelRow, ProviderRow, Settings
from gateway.errors import InvalidRequest
from gateway.feed import SpeechFeed
from gateway.request import (
    ChatRequest,
    Message,
    Part,
    Role,
    Sampling,
    SpeechRequest,
    Text,
    ToolCall,
    ToolResult,
    text_message,
)
from tests.running import Service

HALF = "Hi \ud83d there"
PARTS: list[Callable[[str], Part]] = [
    Text,
    lambda text: ToolResult("call_1", text),
    lambda text: ToolCall("call_1", "f", json.dumps({"q": text}, ensure_ascii=False)),
]


def gateway() -> Gateway:
    rows = (ProviderRow(name="script", type="scripted"),)
    models = (
        ModelRow(id="default", provider="script", upstream="echo"),
        ModelRow(id="voice", provider="script", upstream="tone", kind="speech"),
    )
    return Gateway(Settings(providers=rows, models=models), build)


@pytest.mark.parametrize("part", PARTS)
async def test_half_a_character_in_a_message_is_refused(part: Callable[[str], Part]) -> None:
    request = ChatRequest("", (Message(Role.USER, (Text("ok"), part(HALF))),))
    with pytest.raises(InvalidRequest, match="U\\+D83D") as refused:
        async with gateway().chat(request, wire="test"):
            pass
    assert refused.value.param == "messages"
    refused.value.message.encode()


async def test_half_a_character_in_a_stop_sequence_is_refused() -> None:
    request = ChatRequest("", (text_message(Role.USER, "hi"),), sampling=Sampling(stop=(HALF,)))
    with pytest.raises(InvalidRequest) as refused:
        async with gateway().chat(request, wire="test"):
            pass
    assert refused.value.param == "stop"


async def test_half_a_character_to_speak_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        async with gateway().speech(SpeechRequest("", HALF), wire="test"):
            pass
    with pytest.raises(InvalidRequest):
        await SpeechFeed().append(HALF)


async def test_whole_characters_of_any_plane_pass() -> None:
    request = ChatRequest("", (text_message(Role.USER, "안녕 👋🏽 \U0010ffff"),))
    async with gateway().chat(request, wire="test") as events:
        assert [event async for event in events]


def test_a_client_is_told_so_by_status(service: Service) -> None:
    body: dict[str, Any] = {"model": "echo", "messages": [{"role": "user", "content": HALF}], "stream": True}
    headers = {"content-type": "application/json"}
    url, data = f"{service.url}/v1/chat/completions", json.dumps(body).encode()
    request = Request(url, data, headers)  # noqa: S310 - loopback
    with pytest.raises(HTTPError) as refused:
        urlopen(request, timeout=10)  # noqa: S310 - loopback
    with refused.value as answer:
        assert answer.code == 400
        assert "half of a character" in json.loads(answer.read())["error"]["message"]
