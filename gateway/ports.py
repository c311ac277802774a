"""The ports: what a provider and a store must be able to do. Adapters implement them, wires never see them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from gateway.events import AudioEvent, Delta, Finished, TextDelta
from gateway.request import ChatRequest, SpeechRequest, TranscriptionRequest


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a chat provider can do beyond text. `streams.py` refuses what it cannot before it is called."""

    tools: bool = True
    images: bool = True
    response_format: bool = True


class ChatProvider(Protocol):
    """A chat backend.

    `stream` yields deltas, then exactly one `Finished`, or raises a `GatewayError`. It never yields `Started` or
    `Failed` and never retries after its first event. An upstream that ends without its terminal marker raises
    `Truncated`. Closing the generator closes the upstream connection at once.
    """

    name: str
    capabilities: Capabilities

    def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | Finished, None]: ...

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True)
class SpeechLimits:
    """What one `synthesize` call may hold (`characters`), and the voices on offer (empty = any name is passed on)."""

    characters: int = 4096
    voices: tuple[str, ...] = ()


class SpeechProvider(Protocol):
    """A voice. `synthesize` yields one `AudioStart` with the true PCM format, then `AudioDelta`s; it ends or raises."""

    name: str
    limits: SpeechLimits

    def synthesize(self, request: SpeechRequest) -> AsyncGenerator[AudioEvent, None]: ...

    async def aclose(self) -> None: ...


class TranscriptionProvider(Protocol):
    """A transcriber. `transcribe` yields deltas whose joined text is the transcript, then `Finished`; or it raises."""

    name: str

    def transcribe(self, request: TranscriptionRequest) -> AsyncGenerator[TextDelta | Finished, None]: ...

    async def aclose(self) -> None: ...


Provider = ChatProvider | SpeechProvider | TranscriptionProvider
