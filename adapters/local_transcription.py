"""The embedded transcriber, without key and network: moonshine tiny, English. A text delta is a line, cut at a pause.

moonshine-voice is pinned to 0.1.0: later wheels carry no model and would download one at run time.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import lru_cache
from pathlib import Path

import numpy
from moonshine_voice import (
    ModelArch,
    MoonshineError,
    Stream,
    Transcriber,
    get_assets_path,
)

from adapters.local_thread import EngineThread
from gateway.config import ProviderRow, Settings
from gateway.errors import InvalidRequest, Unsupported, UpstreamError, UpstreamUnavailable
from gateway.events import Finished, FinishReason, TextDelta
from gateway.request import TranscriptionRequest

STEP_SECONDS = 0.5
UPDATE_SECONDS = 3.0
"""Audio between two looks for finished lines. Each look transcribes the unfinished line again."""
NEVER = 1e12


class LocalTranscription:
    """A `TranscriptionProvider` on one thread of its own. Closing a stream ends it after the step at work."""

    def __init__(self, row: ProviderRow, settings: Settings) -> None:
        self.name = row.name
        self._thread = EngineThread("local-transcription")

    async def warm(self) -> None:
        """Have the model loaded before the first request."""
        await self._thread.run(_transcriber)

    async def transcribe(self, request: TranscriptionRequest) -> AsyncGenerator[TextDelta | Finished, None]:
        _check(request)
        # The engine keeps whole samples only; half of one at the end is a cut that somebody else made.
        samples = numpy.frombuffer(request.pcm[: len(request.pcm) // 2 * 2], "<i2")
        step = max(1, int(request.rate * STEP_SECONDS))
        recording = _Recording(request.rate)
        try:
            for start in range(0, len(samples), step):
                last = start + step >= len(samples)
                for text in await self._thread.run(recording.add, samples[start : start + step], last):
                    yield TextDelta(text)
            for text in await self._thread.run(recording.end):
                yield TextDelta(text)
        except MoonshineError as error:
            raise UpstreamError("The embedded transcriber failed on this audio.") from error
        finally:
            self._thread.leave(recording.close)
        yield Finished(FinishReason.STOP)

    async def aclose(self) -> None:
        await self._thread.aclose()


class _Recording:
    """One recording in the engine, which is opened by the first samples. All methods run in the thread."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._stream: Stream | None = None
        self._unseen = 0.0
        self._told = 0

    def add(self, samples: numpy.ndarray, last: bool) -> list[str]:
        """The lines that these samples finish. The engine loses the end unless it is made to look before `end`."""
        if self._stream is None:
            self._stream = _transcriber().create_stream(update_interval=NEVER)
            self._stream.start()
        self._stream.add_audio((samples.astype("f4") / 32768).tolist(), self._rate)
        self._unseen += len(samples) / self._rate
        if self._unseen < UPDATE_SECONDS and not last:
            return []
        self._unseen = 0.0
        return self._finished_lines(self._stream)

    def end(self) -> list[str]:
        """The lines that the end of the audio finishes."""
        if self._stream is None:
            return []
        self._stream.stop()
        return self._finished_lines(self._stream)

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()

    def _finished_lines(self, stream: Stream) -> list[str]:
        """The lines finished since the last look, in order; the engine reports a finished line more than once."""
        lines = stream.update_transcription(Transcriber.MOONSHINE_FLAG_FORCE_UPDATE).lines
        texts = []
        while self._told < len(lines) and lines[self._told].is_complete:
            if text := lines[self._told].text.strip():
                texts.append(text if not self._told else f" {text}")
            self._told += 1
        return texts


def _check(request: TranscriptionRequest) -> None:
    if request.rate <= 0:
        raise InvalidRequest(f"A sample rate of {request.rate} is impossible.", param="rate")
    language = (request.language or "en").lower().replace("_", "-")
    if language.split("-")[0] not in ("en", "english"):
        raise Unsupported(
            f"The embedded transcriber understands English only, not {request.language!r}.", param="language"
        )


@lru_cache(maxsize=1)
def _transcriber() -> Transcriber:
    path = Path(get_assets_path()) / "tiny-en"
    if not (path / "encoder_model.ort").exists():
        raise UpstreamUnavailable(
            "The embedded transcriber has no model: install moonshine-voice==0.1.0, as requirements.txt says.",
            retryable=False,
        )
    # Otherwise each look would copy all audio so far into Python floats and hold up the event loop.
    return Transcriber(path, ModelArch.TINY, options={"return_audio_data": "false"})
