"""Audio events of a voice -> audio events in the asked format, piece by piece and off the event loop where it is slow.

Measured on one core, per 200 ms of speech: PCM, WAV and resampling 0.2 ms, FLAC 0.6 ms, Opus 1.4 ms, MP3 1.3 to 3 ms,
AAC 2 to 4 ms, and up to 30 ms to open an encoder. FFmpeg frees Python's lock, so the encoders run in two threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from gateway.containers import content_type, output_format
from gateway.decoding import decode_audio
from gateway.encoding import AudioEncoder, SamplePieces
from gateway.errors import UpstreamError
from gateway.events import AudioDelta, AudioEvent, AudioFormat, AudioStart
from gateway.wav import SAMPLE_BYTES, wav_header

__all__ = ["AudioEncoder", "Renderer", "content_type", "decode_audio", "output_format", "wav_header"]

LARGEST_DELTA = 48_000
"""Bytes. The socket's bound is 64 KiB."""

_encoders = ThreadPoolExecutor(max_workers=2, thread_name_prefix="audio")


class Renderer:
    """One audio stream on its way out. `seconds` is how much of the voice's audio the events given so far hold.

    `is_quick` says that `deltas` may be used in place of `feed`, and takes no time worth speaking of.
    `dropped` counts bytes that were no whole sample at the end of a stretch of audio.
    """

    def __init__(self, wanted: AudioFormat) -> None:
        self.format = output_format(wanted)
        self.seconds = 0.0
        self.is_quick = False
        self._is_through = False
        self._wanted = wanted
        self._encoder: AudioEncoder | None = None
        self._pieces: SamplePieces | None = None
        self._second_bytes = 1
        self._dropped = 0

    @property
    def dropped(self) -> int:
        return self._dropped + (self._pieces.dropped if self._pieces else 0)

    def passes(self, event: AudioEvent) -> bool:
        """Whether `event` may go out as it is: then it counts as given, and `feed` must not have it as well."""
        pieces = self._pieces
        if not self._is_through or pieces is None or not isinstance(event, AudioDelta):
            return False
        if not pieces.is_piece(event.data):
            return False
        self.seconds += len(event.data) / self._second_bytes
        return True

    def deltas(self, event: AudioDelta) -> Sequence[AudioDelta]:
        """What `event` makes ready, while `is_quick`."""
        if self.passes(event):
            return (event,)
        assert self._encoder is not None and self._pieces is not None  # noqa: S101, PT018 - `is_quick` says so
        ready: list[AudioDelta] = []
        for piece in self._pieces.feed(event.data):
            self.seconds += len(piece) / self._second_bytes
            ready += _cut(self._encoder.feed(piece))
        self._is_through = self._encoder.is_through
        return ready

    async def feed(self, event: AudioEvent) -> AsyncGenerator[AudioEvent, None]:
        """The events that `event` makes ready: one `AudioStart` for all, then deltas of whole samples."""
        match event:
            case AudioStart(format=source) if self._encoder is None:
                encoder = self._encoder = AudioEncoder(source, self._wanted)
                self.is_quick = not encoder.is_slow
                self._begin(encoder, source)
                yield AudioStart(self.format)
            case AudioStart(format=source):
                for delta in _cut(await self._retuned(source)):
                    yield delta
            case AudioDelta(data=data):
                if self._encoder is None or self._pieces is None:
                    raise UpstreamError("A voice sent audio before it said its format.")
                for piece in self._pieces.feed(data):
                    for delta in _cut(await self._encoded(self._encoder, piece)):
                        yield delta

    async def settle(self) -> AsyncGenerator[AudioDelta, None]:
        """The whole samples that wait for company: the voice makes a pause here. Half a sample is dropped."""
        if self._encoder is not None and self._pieces is not None:
            for delta in _cut(await self._encoded(self._encoder, self._pieces.close())):
                yield delta

    async def close(self) -> AsyncGenerator[AudioDelta, None]:
        """The last events. Nothing at all when the voice gave no format."""
        if self._encoder is None or self._pieces is None:
            return
        last = await self._encoded(self._encoder, self._pieces.close())
        for delta in _cut(last + await self._run(self._encoder, self._encoder.close)):
            yield delta

    async def _encoded(self, encoder: AudioEncoder, pcm: bytes) -> bytes:
        self.seconds += len(pcm) / self._second_bytes
        encoded = await self._run(encoder, encoder.feed, pcm)
        self._is_through = encoder.is_through
        return encoded

    async def _retuned(self, source: AudioFormat) -> bytes:
        """A new stretch of audio begins: its samples must not be glued to half a sample of the one before."""
        if self._encoder is None or self._pieces is None:
            return b""
        rest = await self._encoded(self._encoder, self._pieces.close())
        self._dropped = self.dropped
        rest += await self._run(self._encoder, self._encoder.retune, source)
        self._begin(self._encoder, source)
        return rest

    async def _run(self, encoder: AudioEncoder, step: Callable[..., bytes], *given: object) -> bytes:
        if encoder.is_slow:
            return await asyncio.get_running_loop().run_in_executor(_encoders, step, *given)
        return step(*given)

    def _begin(self, encoder: AudioEncoder, source: AudioFormat) -> None:
        self._is_through = encoder.is_through
        self._pieces = SamplePieces(source)
        self._second_bytes = SAMPLE_BYTES * source.channels * source.rate


def _cut(data: bytes) -> Iterator[AudioDelta]:
    for start in range(0, len(data), LARGEST_DELTA):
        yield AudioDelta(data[start : start + LARGEST_DELTA])
