"""One voice at work: text is said to it as it comes, audio is taken from it as it is made.

Everything between the two is bounded: `text.say` waits while much text waits for the voice, the voice waits while much
audio waits to be taken, and no piece is requested before the audio of the last but one has been taken.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace

from gateway.audio import Renderer
from gateway.errors import UpstreamTimeout
from gateway.events import AudioDelta, AudioEvent
from gateway.heard import HeardText
from gateway.patience import Patience, Waited, WaitLimit
from gateway.pieces import SpokenPieces
from gateway.ports import SpeechProvider
from gateway.request import SpeechRequest
from gateway.waiting import Signal

MOST_AUDIO_AHEAD = 256 * 1024
"""Bytes that may wait to be taken, about five seconds of PCM."""


@dataclass(frozen=True, slots=True)
class _Made:
    """Audio that waits to be taken: of which piece it is, and where in the voice's audio it ends."""

    event: AudioEvent
    piece: int
    seconds: float


class Speaker:
    """`text` takes what is to be said, `run` (a task of the caller's) is the voice, `take` gives the audio.

    Every sentence is a request of its own. Raises InvalidRequest for a format that cannot be made.
    """

    def __init__(
        self,
        provider: SpeechProvider,
        request: SpeechRequest,
        heard: HeardText,
        patience: Patience,
    ) -> None:
        self.signal = Signal()
        self.text = SpokenPieces(provider.limits.characters, self.signal)
        self._provider = provider
        self._request = request
        self._heard = heard
        self._patience = patience
        self._renderer = Renderer(request.format)
        self._made: deque[_Made] = deque()
        self._audio_ahead = 0
        self._taken = 0.0
        self._dry_at = 0.0
        self._piece = 0

    @property
    def has_audio(self) -> bool:
        """Whether there is audio to take."""
        return bool(self._made)

    def take(self) -> AudioEvent:
        """The next audio; `has_audio` must be true. It counts as heard from now on."""
        made = self._made.popleft()
        if isinstance(made.event, AudioDelta):
            self._audio_ahead -= len(made.event.data)
            self._heard.hear(made.seconds)
            self._dry_at = max(self._dry_at, time.monotonic()) + made.seconds - self._taken
            self._taken = made.seconds
        self.signal.changed()
        return made.event

    async def run(self) -> None:
        """Synthesize piece after piece until the text has ended. Raises what the provider raises."""
        while (piece := await self._next_piece()) is not None:
            await self._synthesize(piece)
        await self._put_all(self._renderer.close())

    @property
    def _needed_at(self) -> float:
        """When a listener who plays what is taken will have heard all that is made."""
        return max(self._dry_at, time.monotonic()) + self._renderer.seconds - self._taken

    async def _next_piece(self) -> str | None:
        await self.signal.until(lambda: self.text.is_ready or self.text.is_over)
        if self.text.is_over:
            return None
        await self.signal.until(lambda: not self._made or self._made[0].piece >= self._piece)
        return self.text.take()

    async def _synthesize(self, piece: str) -> None:
        self._piece += 1
        self._heard.begin(piece, self._renderer.seconds)
        request = replace(self._request, text=piece, needed_at=self._needed_at)
        async with aclosing(self._provider.synthesize(request)) as audio, aclosing(self._patiently(audio)) as events:
            async for event in events:
                if self._renderer.passes(event):
                    await self._put(event)
                else:
                    await self._put_all(self._renderer.feed(event))
        await self._put_all(self._renderer.settle())
        self._heard.end(self._renderer.seconds)

    async def _patiently(self, audio: AsyncGenerator[AudioEvent, None]) -> AsyncGenerator[AudioEvent, None]:
        """`audio`, whose silences are bounded. Raises UpstreamTimeout."""
        wait, limit = WaitLimit(), self._patience.first_event
        try:
            while True:
                with wait.bounded(limit):
                    event = await anext(audio)
                yield event
                limit = self._patience.idle
        except StopAsyncIteration:
            return
        except Waited:
            raise UpstreamTimeout(
                f"Voice {self._provider.name!r} sent nothing for {limit:g} s.", provider=self._provider.name
            ) from None
        finally:
            wait.stop()

    async def _put_all(self, events: AsyncGenerator[AudioEvent, None]) -> None:
        async with aclosing(events):
            async for event in events:
                await self._put(event)

    async def _put(self, event: AudioEvent) -> None:
        if self._audio_ahead >= MOST_AUDIO_AHEAD:
            await self.signal.until(lambda: self._audio_ahead < MOST_AUDIO_AHEAD)
        self._made.append(_Made(event, self._piece, self._renderer.seconds))
        if isinstance(event, AudioDelta):
            self._audio_ahead += len(event.data)
        self.signal.changed()
