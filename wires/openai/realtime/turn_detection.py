"""Probabilities of speech, one for each window, to the beginnings and ends of a speaker's turns."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.voice_activity import WINDOW_MS
from wires.openai.realtime.configuration import ServerVad

SPEECH_WINDOWS = 2
"""Windows in a row that make a beginning: a click is shorter, and barge-in must not wait longer."""
HYSTERESIS = 0.15
"""How far below the threshold a probability must fall to count as silence."""


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    at_ms: float


@dataclass(frozen=True, slots=True)
class SpeechStopped:
    at_ms: float


class TurnDetector:
    """Begins at `origin_ms` of the session's audio."""

    def __init__(self, settings: ServerVad, origin_ms: float) -> None:
        self._settings = settings
        self._at_ms = origin_ms
        self._speech = self._silence = 0
        self.speaking = False

    def feed(self, probability: float) -> SpeechStarted | SpeechStopped | None:
        """The next window; what began or ended with it."""
        self._at_ms += WINDOW_MS
        if self.speaking:
            return self._in_speech(probability)
        self._speech = self._speech + 1 if probability >= self._settings.threshold else 0
        if self._speech < SPEECH_WINDOWS:
            return None
        self.speaking, self._silence = True, 0
        return SpeechStarted(self._at_ms - SPEECH_WINDOWS * WINDOW_MS)

    def forget(self) -> None:
        """The audio so far belongs to no turn any more."""
        self.speaking, self._speech, self._silence = False, 0, 0

    def _in_speech(self, probability: float) -> SpeechStopped | None:
        self._silence = self._silence + 1 if probability < self._settings.threshold - HYSTERESIS else 0
        if not self._silence or self._silence * WINDOW_MS < self._settings.silence_duration_ms:
            return None
        self.forget()
        return SpeechStopped(self._at_ms)
