"""`openai` rows against llm-katan, a server that shares no code with us or with llama.cpp."""

from __future__ import annotations

import traceback
from collections.abc import Iterator

import pytest

from adapters.openai_chat import OpenAIChat
from gateway.config import ProviderRow, Settings
from gateway.errors import GatewayError
from gateway.events import Finished, FinishReason, TextDelta
from gateway.request import ChatRequest, Role, text_message
from tests.upstreams.katan_server import KEY, katan_server

QUESTION = ChatRequest("echo", (text_message(Role.USER, "안녕하세요 👋🏽"),))


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    with katan_server() as url:
        yield url


def peer(base_url: str) -> OpenAIChat:
    row = ProviderRow(name="katan", type="openai", base_url=base_url, api_key_env="KATAN_KEY")
    return OpenAIChat(row, Settings())


async def test_the_echo_streams_whole(base_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KATAN_KEY", KEY)
    provider = peer(base_url)
    *deltas, finished = [event async for event in provider.stream(QUESTION)]
    await provider.aclose()
    assert len(deltas) > 1
    assert "안녕하세요 👋🏽" in "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    assert isinstance(finished, Finished)
    assert finished.reason is FinishReason.STOP


async def test_a_refusal_that_tells_the_right_key_is_not_quoted(base_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KATAN_KEY", "sk-canary-wrong")
    provider = peer(base_url)
    with pytest.raises(GatewayError) as raised:
        await anext(provider.stream(QUESTION))
    await provider.aclose()
    assert (raised.value.status, raised.value.code) == (502, "provider_credentials")
    assert "sk-canary" not in "".join(traceback.format_exception(raised.value))
