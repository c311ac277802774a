"""`openai` rows against llama.cpp's own server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing

import pytest
import pytest_asyncio

from adapters.openai_chat import OpenAIChat
from gateway.config import ProviderRow, Settings
from gateway.errors import ContextLengthExceeded, GatewayError
from gateway.events import Delta, Finished, FinishReason, TextDelta
from gateway.request import ChatRequest, Role, Sampling, text_message
from tests.upstreams.llama_server import CONTEXT, KEY, llama_server


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    with llama_server() as url:
        yield url


@pytest_asyncio.fixture
async def llama(base_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OpenAIChat]:
    monkeypatch.setenv("LLAMA_KEY", KEY)
    provider = OpenAIChat(
        ProviderRow(name="llama", type="openai", base_url=base_url, api_key_env="LLAMA_KEY"), Settings()
    )
    yield provider
    await provider.aclose()


def question(text: str, most: int, **more: object) -> ChatRequest:
    sampling = Sampling(max_tokens=most, temperature=0, seed=1, top_k=1)
    return ChatRequest("smollm2", (text_message(Role.USER, text),), sampling=sampling, **more)  # type: ignore[arg-type]  # tests name the fields


async def everything(provider: OpenAIChat, request: ChatRequest) -> list[Delta | Finished]:
    return [event async for event in provider.stream(request)]


async def test_tokens_stream_with_their_usage(llama: OpenAIChat) -> None:
    *deltas, finished = await everything(llama, question("Count to twenty in words.", 12))
    assert len([delta for delta in deltas if isinstance(delta, TextDelta)]) > 3
    assert isinstance(finished, Finished)
    assert finished.reason is FinishReason.LENGTH
    assert finished.usage is not None
    assert finished.usage.output_tokens == 12
    assert finished.usage.input_tokens > 5


async def test_a_prompt_over_the_context_is_told_as_such(llama: OpenAIChat) -> None:
    with pytest.raises(ContextLengthExceeded):
        await everything(llama, question("word " * CONTEXT * 2, 4))


async def test_a_wrong_key_is_told_without_it(base_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_KEY", "sk-canary-wrong-987654321")
    row = ProviderRow(name="llama", type="openai", base_url=base_url, api_key_env="LLAMA_KEY")
    provider = OpenAIChat(row, Settings())
    with pytest.raises(GatewayError) as raised:
        await everything(provider, question("Hello", 4))
    assert (raised.value.status, raised.value.code) == (502, "provider_credentials")
    await provider.aclose()


async def test_leaving_frees_the_servers_only_slot(llama: OpenAIChat) -> None:
    async with aclosing(llama.stream(question("Tell me a very long story.", 400))) as events:
        await anext(events)
    async with asyncio.timeout(10):
        *_, finished = await everything(llama, question("Hello", 2))
    assert isinstance(finished, Finished)


async def test_a_response_format_is_kept_to(llama: OpenAIChat) -> None:
    schema = {"type": "object", "properties": {"word": {"enum": ["yes"]}}, "required": ["word"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "say", "schema": schema}}
    events = await everything(llama, question("Say a word.", 60, response_format=wanted))
    said = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert json.loads(said) == {"word": "yes"}
