"""The ports: what a provider and a store must be able to do. Adapters implement them, wires never see them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from gateway.connector import Connector
from gateway.events import AudioEvent, Delta, Finished, TextDelta
from gateway.request import ChatRequest, SpeechRequest, TranscriptionRequest


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a chat provider can do beyond text. `streams.py` refuses what it cannot before it is called."""

    tools: bool = True
    images: bool = True
    response_format: bool = True


class ChatProvider(Protocol):
    """What answers a conversation.

    `stream` yields deltas, then exactly one `Finished`, or raises a `GatewayError`. It never yields `Started` or
    `Failed` and never retries after its first event. An upstream that ends without its terminal marker raises
    `Truncated`. Closing the generator closes the upstream connection at once.
    """

    name: str
    capabilities: Capabilities

    def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | Finished, None]: ...

    async def aclose(self) -> None: ...


class ConnectorProvider(ChatProvider, Protocol):
    """What answers for registered models; `ChatRequest.options["connector"]` says which one is meant."""

    async def ask(self, connector: Connector, parameters: Mapping[str, str]) -> Any:
        """The remote service's own answer, not streamed, as decoded JSON. Raises GatewayError."""
        ...


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


@runtime_checkable
class Warmable(Protocol):
    """A provider that has something to load. `warm` returns when that is done, or raises `GatewayError`."""

    async def warm(self) -> None: ...


Provider = ChatProvider | SpeechProvider | TranscriptionProvider


@dataclass(frozen=True, slots=True)
class Document:
    """A stored value. `version` rises with every change; `owner` is the hashed id of the key that created it."""

    key: str
    value: bytes
    owner: str
    version: int
    created_at: float


@dataclass(frozen=True, slots=True)
class LogPage:
    """Some entries of a log with their positions (from 1).

    `last` is the log's last position, 0 when there is no such log. `ended`: it is closed and these reach its end.
    """

    entries: Sequence[tuple[int, bytes]]
    last: int
    ended: bool


class Store(Protocol):
    """State that outlives a request, shared by all workers (and, on Redis, by all replicas).

    Documents are values by kind and key. Logs are append-only lists that can be read while they grow. Signals reach
    every worker's subscribers within 100 ms and are lost when nobody listens. Times are in Unix seconds; what has
    expired is as good as deleted. Every method may raise a GatewayError of status 503 when the store does not answer.
    """

    async def put(self, kind: str, key: str, value: bytes, *, owner: str, ttl: float | None = None) -> Document:
        """Create or replace a document, forgotten after `ttl` seconds."""
        ...

    async def add(self, kind: str, key: str, value: bytes, *, owner: str, ttl: float | None = None) -> Document | None:
        """Create a document only if there is none; None when there is: of two racers one wins."""
        ...

    async def get(self, kind: str, key: str) -> Document | None: ...

    async def replace(
        self, kind: str, key: str, value: bytes, *, version: int, ttl: float | None = None
    ) -> Document | None:
        """Change a document only if it still has `version`; None when it has not. `ttl` None keeps its expiry."""
        ...

    async def delete(self, kind: str, key: str) -> bool:
        """Whether there was such a document."""
        ...

    async def list(self, kind: str, *, owner: str | None, limit: int, before: str | None = None) -> Sequence[Document]:
        """The newest documents first, older than the document `before` if given; every owner's when `owner` is None."""
        ...

    async def append(
        self,
        log: str,
        entries: Sequence[bytes],
        *,
        after: int | None = None,
        last: bool = False,
        ttl: float | None = None,
    ) -> int:
        """Add at least one entry; gives the last one's position. `last` closes the log; a closed one raises Conflict.

        `after` is the position at which the log must end now; if it does not, as after a loss, Conflict is raised and
        nothing is added. `ttl` sets when the whole log is forgotten; None keeps it as it was, at first for ever.
        """
        ...

    async def read(self, log: str, after: int = 0, limit: int = 200) -> LogPage:
        """The entries after position `after` that are there now."""
        ...

    def follow(self, log: str, after: int = 0) -> AsyncGenerator[tuple[int, bytes], None]:
        """Every entry after position `after`, then more as they come, until the log is closed. No gap, no double.

        A log that has not begun is waited for; one that expires while it is read raises NotFound.
        """
        ...

    async def take(self, key: str, amount: float, *, capacity: float, per_seconds: float) -> float:
        """Take `amount` out of the bucket `key`, which holds `capacity` and fills itself from empty in `per_seconds`.

        0 when it was taken; else nothing was, and this is in how many seconds there will be enough. All workers and
        replicas share the bucket. An amount above the capacity is never there.
        """
        ...

    async def signal(self, channel: str, message: bytes) -> None: ...

    def signals(self, channel: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Messages sent to `channel` from the moment the context is entered."""
        ...

    async def aclose(self) -> None: ...
