"""Rows, requests and clients that the AWS tests share."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import replace
from typing import Any, TypeVar

import botocore.config
import botocore.session

from adapters.bedrock import Bedrock
from adapters.polly import Polly
from adapters.sagemaker import SageMaker
from gateway.config import ProviderRow, ProviderType, Settings
from gateway.errors import GatewayError
from gateway.events import AudioDelta, Finished, TextDelta
from gateway.request import ChatRequest, Role, SpeechRequest, text_message
from tests.upstreams.aws_fake import (
    CONVERSE_TEXT,
    PCM,
    TGI_3,
    audio,
    chat_chunk,
    part,
    parts,
    stream,
    text_delta,
)
from tests.upstreams.byte_server import Answer, ByteServer, Step, serving

ACCESS_KEY = "sk-canary-access-key"
SECRET_KEY = "sk-canary/secret/key"
SESSION_TOKEN = "sk-canary+session+token"
CANARIES = (ACCESS_KEY, SECRET_KEY, SESSION_TOKEN)

Event = TypeVar("Event")
Source = Callable[[], AsyncGenerator[Any, None]]
MODELS = {"bedrock": "us.anthropic.claude-3:0", "sagemaker": "my-endpoint", "polly": "neural"}
BODIES: dict[str, list[bytes]] = {
    "bedrock": CONVERSE_TEXT,
    "sagemaker": parts(TGI_3, 50),
    "polly": [PCM[:500], PCM[500:]],
}
OPENINGS = {"bedrock": text_delta("Hi"), "sagemaker": part(chat_chunk("Hi")), "polly": PCM}
ADAPTERS: dict[str, type[Bedrock | SageMaker | Polly]] = {"bedrock": Bedrock, "sagemaker": SageMaker, "polly": Polly}
KINDS: tuple[ProviderType, ...] = ("bedrock", "sagemaker", "polly")


def row(kind: ProviderType, url: str | None, **more: Any) -> ProviderRow:
    return ProviderRow.model_validate({"name": kind, "type": kind, "region": "us-east-1", "endpoint_url": url} | more)


def provider(kind: ProviderType, url: str | None, **more: Any) -> Bedrock | SageMaker | Polly:
    """The adapter of `kind` with its upstream at `url`; to be closed."""
    return ADAPTERS[kind](row(kind, url, **more), Settings())


def at(server: ByteServer, kind: ProviderType, **more: Any) -> AbstractAsyncContextManager[Any]:
    return aclosing(provider(kind, server.url, **more))


def events(adapter: Any, text: str = "안녕?", **more: Any) -> AsyncGenerator[Any, None]:
    """The stream of one small request, whatever the adapter's port."""
    model = MODELS[adapter.name]
    if isinstance(adapter, Polly):
        return adapter.synthesize(SpeechRequest(model, text, **more))
    generator: AsyncGenerator[Any, None] = adapter.stream(ChatRequest(model, (text_message(Role.USER, text),), **more))
    return generator


def answer(kind: ProviderType, *steps: Step, **more: Any) -> Answer:
    """A good answer's head with `steps` for its body."""
    return audio(*steps, **more) if kind == "polly" else replace(stream(*steps), **more)


async def read_all(generator: AsyncGenerator[Event, None]) -> tuple[list[Event], GatewayError | None]:
    """The events until the end, and the error that it ended with."""
    seen: list[Event] = []
    async with aclosing(generator) as source:
        try:
            async for event in source:
                seen.append(event)
        except GatewayError as error:
            return seen, error
    return seen, None


async def failures(kind: ProviderType, *answers: Answer) -> list[tuple[list[Any], GatewayError]]:
    """What one adapter gives for each answer in turn: its events and its error."""
    told = []
    async with serving(*answers) as server, at(server, kind) as adapter:
        for _ in answers:
            seen, raised = await read_all(events(adapter))
            assert raised is not None
            assert raised.provider == kind
            told.append((seen, raised))
    return told


async def failure(kind: ProviderType, answered: Answer) -> tuple[list[Any], GatewayError]:
    (told,) = await failures(kind, answered)
    return told


def text_of(seen: list[Any]) -> str:
    return "".join(event.text for event in seen if isinstance(event, TextDelta))


def audio_of(seen: list[Any]) -> bytes:
    return b"".join(event.data for event in seen if isinstance(event, AudioDelta))


def finished(seen: list[Any]) -> Finished:
    assert isinstance(seen[-1], Finished)
    assert sum(isinstance(event, Finished) for event in seen) == 1
    return seen[-1]


def boto_client(service: str, server: ByteServer) -> Any:
    """A plain client of AWS's own SDK; its calls block."""
    config = botocore.config.Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=5)
    return botocore.session.Session().create_client(
        service, region_name="us-east-1", endpoint_url=server.url, config=config
    )


def chat(*texts: str, **more: Any) -> ChatRequest:
    """A request of user messages to the endpoint of these tests."""
    return ChatRequest("endpoint", tuple(text_message(Role.USER, text) for text in texts), **more)
