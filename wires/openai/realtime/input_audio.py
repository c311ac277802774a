"""What a client has said: the audio that belongs to no item yet, and who finds the turns in it.

Places in the audio are milliseconds since the session's first sample.
"""

from __future__ import annotations

from wires.openai.realtime.configuration import ServerVad
from wires.openai.realtime.formats import PcmFormat, WireFormat, decode, rate_of
from wires.openai.realtime.outgoing import Listen
from wires.openai.realtime.turn_detection import SpeechStarted, SpeechStopped, TurnDetector

SAMPLE_BYTES = 2
MOST_SECONDS = 300.0
"""Audio that is held at most; what is older is dropped."""


class InputAudio:
    """The input audio buffer."""

    def __init__(self, format: WireFormat, vad: ServerVad | None) -> None:
        self._format, self._vad = format, vad
        self._pcm = bytearray()
        self._odd = b""
        self._start_ms = 0.0
        self._fresh = True
        self._detector = TurnDetector(vad, 0.0) if vad else None

    @property
    def end_ms(self) -> float:
        """The end of what was received."""
        return self._start_ms + len(self._pcm) / self._bytes_per_ms

    @property
    def is_empty(self) -> bool:
        return not self._pcm

    @property
    def speaking(self) -> bool:
        """Whether a turn has begun and not ended."""
        return self._detector is not None and self._detector.speaking

    @property
    def rate(self) -> int:
        return rate_of(self._format)

    def configure(self, format: WireFormat, vad: ServerVad | None) -> None:
        """Take audio in `format` from now on; audio in another one is dropped. New turns are found by `vad`."""
        if format != self._format:
            self.clear()
            self._format, self._fresh = format, True
        if vad != self._vad:
            self._vad, self._fresh = vad, True
            self._detector = TurnDetector(vad, self.end_ms) if vad else None

    def append(self, data: bytes) -> Listen | None:
        """Add audio; what must be listened to, if turns are looked for. Samples may be cut between two calls."""
        if isinstance(self._format, PcmFormat):
            data = self._odd + data
            whole = len(data) - len(data) % SAMPLE_BYTES
            data, self._odd = data[:whole], data[whole:]
        pcm = decode(self._format, data)
        self._pcm += pcm
        too_much = len(self._pcm) - int(MOST_SECONDS * 1000 * self._bytes_per_ms)
        if too_much > 0:
            self._drop(too_much)
        if self._detector is None or not pcm:
            return None
        fresh, self._fresh = self._fresh, False
        return Listen(pcm, self.rate, fresh)

    def listened(self, probability: float) -> SpeechStarted | SpeechStopped | None:
        """The next window's probability of speech; what began or ended there. A beginning includes the padding."""
        if self._detector is None or self._vad is None:
            return None
        found = self._detector.feed(probability)
        if isinstance(found, SpeechStarted):
            padded = max(found.at_ms - self._vad.prefix_padding_ms, self._start_ms)
            self._drop(self._bytes_before(padded))
            return SpeechStarted(padded)
        return found

    def take(self, until_ms: float | None = None) -> bytes:
        """All audio, or what is before `until_ms`; it is held no more."""
        count = len(self._pcm) if until_ms is None else self._bytes_before(until_ms)
        pcm = bytes(self._pcm[:count])
        self._drop(count)
        if until_ms is None and self._detector is not None:
            self._detector.forget()
        return pcm

    def clear(self) -> None:
        """Drop all audio; a turn that had begun is none."""
        self.take()
        self._odd = b""

    @property
    def _bytes_per_ms(self) -> float:
        return self.rate * SAMPLE_BYTES / 1000

    def _bytes_before(self, at_ms: float) -> int:
        count = int((at_ms - self._start_ms) * self._bytes_per_ms) // SAMPLE_BYTES * SAMPLE_BYTES
        return min(max(count, 0), len(self._pcm))

    def _drop(self, count: int) -> None:
        self._start_ms += count / self._bytes_per_ms
        del self._pcm[:count]
