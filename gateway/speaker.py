"""One voice at work: text is said to it as it comes, audio is taken from it as it is made.

Everything between the two is bounded: `say` waits while much text waits for the voice, the voice waits while much
audio waits to be taken, and no piece is requested before the audio of the last but one has been taken.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass, replace

from gateway.audio import Renderer
from gateway.errors import UpstreamTimeout
from gateway.events import AudioDelta, AudioEvent
from gateway.heard import HeardText
from gateway.patience import Waited, WaitLimit
from gateway.ports import SpeechProvider
from gateway.request import SpeechRequest
from gateway.sentences import DEFAULT_LIMIT, SentenceCutter
from gateway.spoken import PAUSED, SpokenText
from gateway.stops import WORD
from gateway.streams import Patience
from gateway.waiting import Signal

MOST_TEXT_AHEAD = 32_768
"""Characters that may wait for the voice: more than an ordinary answer has, so its text is never held up."""

MOST_AUDIO_AHEAD = 256 * 1024
"""Bytes that may wait to be taken, about five seconds of PCM."""

LONGEST_SILENCE = 1.0
"""Seconds without new text after which a sentence without a stop is spoken as it stands."""

SLICE = 1024


@dataclass(frozen=True, slots=True)
class _Made:
    """Audio that waits to be taken: of which piece it is, and where in the voice's audio it ends."""

    event: AudioEvent
    piece: int
    seconds: float


class Speaker:
    """`say`, `flush` and `end` are the text's side, `run` (a task of the caller's) the voice, `take` the audio's side.

    `whole` fills each request up to the provider's limit; otherwise every sentence is a request of its own.
    """

    def __init__(
        self,
        provider: SpeechProvider,
        request: SpeechRequest,
        heard: HeardText,
        *,
        whole: bool = False,
        patience: Patience | None = None,
    ) -> None:
        self.signal = Signal()
        self._provider = provider
        self._request = request
        self._heard = heard
        self._patience = patience
        self._whole = whole
        self._limit = provider.limits.characters if whole else min(DEFAULT_LIMIT, provider.limits.characters)
        self._spoken = SpokenText()
        self._cutter = SentenceCutter(self._limit, first_clause=not whole)
        self._renderer = Renderer(request.format)
        self._pieces: deque[str] = deque()
        self._filling = ""
        self._text_ahead = 0
        self._ended = False
        self._made: deque[_Made] = deque()
        self._audio_ahead = 0
        self._piece = 0
        self._last_text = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def has_audio(self) -> bool:
        return bool(self._made)

    async def say(self, text: str) -> None:
        """Give the next text. Waits while the voice is far behind."""
        for start in range(0, len(text), SLICE):
            if start:
                await asyncio.sleep(0)
            self._add(self._cutter.feed(self._spoken.feed(text[start : start + SLICE])))
            self._wind_clock()
            if self._text_ahead >= MOST_TEXT_AHEAD:
                await self.signal.until(lambda: self._text_ahead < MOST_TEXT_AHEAD)

    def flush(self) -> None:
        """Speak what was said so far, without waiting for its sentence to end."""
        self._add(self._cutter.feed(self._spoken.flush()) + self._cutter.flush())
        self._push_filling()

    def end(self) -> None:
        """There is no more text."""
        self.flush()
        self._ended = True
        self.stop_clock()
        self.signal.changed()

    def stop_clock(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def take(self) -> AudioEvent:
        """The next audio; `has_audio` must be true. It counts as heard from now on."""
        made = self._made.popleft()
        if isinstance(made.event, AudioDelta):
            self._audio_ahead -= len(made.event.data)
            self._heard.hear(made.seconds)
        self.signal.changed()
        return made.event

    async def run(self) -> None:
        """Synthesize piece after piece until the text has ended. Raises what the provider raises."""
        while (piece := await self._next_piece()) is not None:
            await self._synthesize(piece)
        await self._put_all(self._renderer.close())

    async def _next_piece(self) -> str | None:
        await self.signal.until(lambda: self._pieces or self._ended)
        if not self._pieces:
            return None
        await self.signal.until(lambda: not self._made or self._made[0].piece >= self._piece)
        piece = self._pieces.popleft()
        self._text_ahead -= len(piece)
        self.signal.changed()
        return piece

    async def _synthesize(self, piece: str) -> None:
        self._piece += 1
        self._heard.begin(piece, self._renderer.seconds)
        request = replace(self._request, text=piece)
        async with aclosing(self._provider.synthesize(request)) as audio, aclosing(self._patiently(audio)) as events:
            async for event in events:
                await self._put_all(self._renderer.feed(event))
        await self._put_all(self._renderer.settle())
        self._heard.end(self._renderer.seconds)

    async def _patiently(self, audio: AsyncGenerator[AudioEvent, None]) -> AsyncGenerator[AudioEvent, None]:
        if self._patience is None:
            async for event in audio:
                yield event
            return
        wait, limit = WaitLimit(), self._patience.first_event
        try:
            while True:
                yield await wait.within(limit, anext(audio))
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
                await self.signal.until(lambda: self._audio_ahead < MOST_AUDIO_AHEAD)
                self._made.append(_Made(event, self._piece, self._renderer.seconds))
                if isinstance(event, AudioDelta):
                    self._audio_ahead += len(event.data)
                self.signal.changed()

    def _add(self, pieces: Iterable[str]) -> None:
        for piece in pieces:
            if not WORD.search(piece):
                continue
            words = " ".join(piece.split())
            if self._whole:
                self._fill(words)
            else:
                self._push(words)

    def _fill(self, words: str) -> None:
        if len(self._filling) + 1 + len(words) > self._limit:
            self._push_filling()
        if self._filling:
            self._filling += " " if self._filling[-1] in PAUSED else "\n"
        self._filling += words

    def _push_filling(self) -> None:
        filling, self._filling = self._filling, ""
        if filling:
            self._push(filling)

    def _push(self, piece: str) -> None:
        self._pieces.append(piece)
        self._text_ahead += len(piece)
        self.signal.changed()

    def _wind_clock(self) -> None:
        loop = asyncio.get_running_loop()
        self._last_text = loop.time()
        if self._timer is None and not self._whole and not self._cutter.is_empty:
            self._timer = loop.call_later(LONGEST_SILENCE, self._ring)

    def _ring(self) -> None:
        """One timer serves many deltas: it looks how long the silence really is and waits for the rest."""
        self._timer = None
        if self._cutter.is_empty:
            return
        loop = asyncio.get_running_loop()
        left = self._last_text + LONGEST_SILENCE - loop.time()
        if left > 0.001:
            self._timer = loop.call_later(left, self._ring)
        else:
            self._add(self._cutter.flush())
