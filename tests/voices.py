"""A voice and a chat that do what a test tells them, and what tests ask of their events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable

from gateway.errors import GatewayError
from gateway.events import (
    AudioDelta,
    AudioEvent,
    AudioFormat,
    AudioStart,
    Finished,
    FinishReason,
    StreamEvent,
    TextDelta,
)
from gateway.ports import SpeechLimits
from gateway.request import SpeechRequest
from tests.sounds import cut

FINISHED = Finished(FinishReason.STOP)
REQUEST = SpeechRequest("voice", "")


def silence(text: str) -> bytes:
    """0.01 s of 24 kHz for every character."""
    return bytes(480 * len(text))


class FakeVoice:
    """Speaks `audio(text)` in pieces of `sizes` bytes. It waits for `gate`; call number `failing` raises `error`."""

    name = "fake"

    def __init__(
        self,
        audio: Callable[[str], bytes] = silence,
        *,
        sizes: Iterable[int] = (4_801,),
        rates: Iterable[int] = (24_000,),
        characters: int = 4_096,
        error: Exception | None = None,
        failing: int = 1,
    ) -> None:
        self.limits = SpeechLimits(characters)
        self.requests: list[SpeechRequest] = []
        self.called = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.closed = 0
        self._audio = audio
        self._sizes = list(sizes)
        self._rates = list(rates)
        self._error = error
        self._failing = failing

    @property
    def texts(self) -> list[str]:
        return [request.text for request in self.requests]

    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[AudioEvent, None]:
        self.requests.append(request)
        self.called.set()
        call = len(self.requests)
        try:
            await self.gate.wait()
            if self._error is not None and call == self._failing:
                raise self._error
            yield AudioStart(AudioFormat(rate=self._rates[(call - 1) % len(self._rates)]))
            for piece in cut(self._audio(request.text), self._sizes):
                yield AudioDelta(piece)
        finally:
            self.closed += 1

    async def aclose(self) -> None:
        """Nothing to close."""


class FakeChat:
    """Yields the events it is given; `pause` in the script waits for `gate`. `read` counts what was read of it."""

    def __init__(self, *script: StreamEvent | str | asyncio.Event | GatewayError) -> None:
        self.read = 0
        self.closed = False
        self._script = script

    async def events(self) -> AsyncGenerator[StreamEvent, None]:
        try:
            for step in self._script:
                if isinstance(step, asyncio.Event):
                    await step.wait()
                elif isinstance(step, GatewayError):
                    raise step
                else:
                    self.read += 1
                    yield TextDelta(step) if isinstance(step, str) else step
        finally:
            self.closed = True


async def all_of(events: AsyncIterator[StreamEvent]) -> list[StreamEvent]:
    return [event async for event in events]


def audio_of(events: list[StreamEvent]) -> bytes:
    return b"".join(event.data for event in events if isinstance(event, AudioDelta))


def text_of(events: list[StreamEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def settled(turns: int = 200) -> None:
    """Let every task run until it waits for somebody else."""
    for _ in range(turns):
        await asyncio.sleep(0)
