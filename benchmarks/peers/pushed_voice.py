"""Polywire with a voice that hands over its frames when they are due, as an engine does that calls back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable

from adapters import BUILDERS
from benchmarks.peers.frames import FRAME_SECONDS, marked
from gateway.bursts import Bursts
from gateway.config import ProviderRow, Settings
from gateway.events import AudioDelta, AudioEvent, AudioFormat, AudioStart
from gateway.ports import SpeechLimits
from gateway.request import SpeechRequest

BUILDERS["scripted"]["speech"] = "benchmarks.peers.pushed_voice:PushedVoice"


class PushedVoice:
    """A `SpeechProvider` that says nothing, in real time and without end."""

    limits = SpeechLimits(characters=4096)

    def __init__(self, row: ProviderRow, settings: Settings) -> None:
        self.name = row.name

    def synthesize(self, request: SpeechRequest) -> AsyncGenerator[AudioEvent, None]:
        clock = _Clock()
        clock.bursts = bursts = Bursts(clock.run())
        return bursts

    async def aclose(self) -> None:
        """Nothing is held."""


class _Clock:
    """Gives a frame every 20 ms to whoever takes it, else to the generator."""

    bursts: Bursts[AudioEvent]

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._due, self._number = time.monotonic(), 0
        self._waiting: asyncio.Future[AudioDelta] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> AsyncGenerator[Iterable[AudioEvent], None]:
        """All frames that were not taken."""
        yield (AudioStart(AudioFormat()),)
        try:
            while True:
                self._waiting = self._loop.create_future()
                self._wind()
                yield (await self._waiting,)
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _wind(self) -> None:
        self._timer = self._loop.call_later(max(0.0, self._due - time.monotonic()), self._ring)

    def _ring(self) -> None:
        frame = AudioDelta(marked(self._due, self._number))
        self._due, self._number = self._due + FRAME_SECONDS, self._number + 1
        taker = self.bursts.taker
        if taker is not None and taker.ready():
            taker.take((frame,))
            self._wind()
        elif self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(frame)


from service import Polywire  # noqa: E402 - it reads the table that was changed above

__all__ = ["Polywire", "PushedVoice"]
