"""Polywire with a voice that makes its frames itself in place of the scripted one: it reads nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from adapters import BUILDERS
from benchmarks.peers.frames import frames
from gateway.config import ProviderRow, Settings
from gateway.events import AudioDelta, AudioEvent, AudioFormat, AudioStart
from gateway.ports import SpeechLimits
from gateway.request import SpeechRequest

BUILDERS["scripted"]["speech"] = "benchmarks.peers.own_voice:OwnVoice"


class OwnVoice:
    """A `SpeechProvider` that says nothing, in real time and without end."""

    limits = SpeechLimits(characters=4096)

    def __init__(self, row: ProviderRow, settings: Settings) -> None:
        self.name = row.name

    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[AudioEvent, None]:
        yield AudioStart(AudioFormat())
        async for frame in frames():
            yield AudioDelta(frame)

    async def aclose(self) -> None:
        """Nothing is held."""


from service import Polywire  # noqa: E402 - it reads the table that was changed above

__all__ = ["OwnVoice", "Polywire"]
