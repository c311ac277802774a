"""What a stream of speech lacks of a stream: its terminal event, and its audio in the right meter."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing

from gateway.events import AudioDelta, AudioEvent, Failed, Finished, FinishReason, StreamEvent, Usage
from gateway.telemetry import Meter


async def finished(
    audio: AsyncGenerator[AudioEvent, None], characters: Callable[[], int]
) -> AsyncGenerator[AudioEvent | Finished, None]:
    """Speech with the terminal event that a `SpeechProvider` leaves to us: its clean end is its marker."""
    async with aclosing(audio):
        async for event in audio:
            yield event
    yield Finished(FinishReason.STOP, Usage(characters=characters()))


async def metered(spoken: AsyncIterator[StreamEvent], meter: Meter) -> AsyncIterator[StreamEvent]:
    """A spoken chat, whose audio and whose voice's failure its chat's meter cannot see by itself."""
    async for event in spoken:
        if isinstance(event, AudioDelta):
            meter.audio()
        elif isinstance(event, Failed):
            meter.end(event)
        yield event
