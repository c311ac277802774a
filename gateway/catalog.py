"""The Gateway: public model id -> provider and upstream id. This is what wires see of everything southbound.

Providers are built when they are first needed (`gateway/providers.py`), or at the start by `warm`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

from gateway.checks import check_chat, check_text
from gateway.config import Kind, ModelRow, ProviderRow, Settings
from gateway.errors import GatewayError, InvalidRequest, NotFound, PayloadTooLarge, RateLimited
from gateway.events import AudioDelta, AudioEvent, Failed, Finished, FinishReason, StreamEvent, Usage
from gateway.ports import ChatProvider, SpeechProvider, TranscriptionProvider, Warmable
from gateway.providers import Builder, Providers
from gateway.request import ChatRequest, SpeechRequest, TranscriptionRequest
from gateway.speech import HeardText, SpeechFeed, speak, speak_feed, synthesize
from gateway.streams import EventStream, Patience, open_stream
from gateway.telemetry import Meter

log = logging.getLogger("polywire")

DEFAULT_IDS: dict[Kind, str] = {"chat": "default", "speech": "voice", "transcription": "transcriber"}


@dataclass(frozen=True, slots=True)
class Target:
    """Where a public model id leads. `voice` is the voice part of a speech id such as `voice/heart`."""

    model: ModelRow
    provider: ProviderRow
    voice: str | None = None


class Gateway:
    """Opens streams on any configured model. One per worker; `aclose` closes every provider it built."""

    def __init__(self, settings: Settings, build: Builder) -> None:
        self.settings = settings
        self._rows = {row.name: row for row in settings.providers}
        self._models = {row.id: row for row in settings.models}
        self._providers = Providers(settings, build)
        self._open = 0
        self._busy_since = self._idle_since = time.time()

    @property
    def activity(self) -> tuple[bool, float]:
        """Whether streams are at work, and since when that is so, in Unix seconds."""
        return (True, self._busy_since) if self._open else (False, self._idle_since)

    def models(self) -> Iterable[ModelRow]:
        """Every model that a client may name, in the order of the configuration."""
        return self._models.values()

    def find(self, model_id: str | None, kind: Kind = "chat") -> Target:
        """The target of `model_id`; None means this kind's default. Raises NotFound or InvalidRequest."""
        wanted = model_id or DEFAULT_IDS[kind]
        row = self._models.get(wanted) or self._open_row(wanted, kind)
        if row is None:
            known = ", ".join(repr(model.id) for model in self._models.values() if model.kind == kind)
            raise NotFound(
                f"There is no {kind} model {wanted!r}. The {kind} models here are {known or 'none'}.",
                code="model_not_found",
                param="model",
            )
        if row.kind != kind:
            raise InvalidRequest(f"Model {wanted!r} is a {row.kind} model, not a {kind} model.", param="model")
        return Target(row, self._rows[row.provider], row.voice)

    def find_voice(self, voice: str | None, model_id: str | None = None) -> Target:
        """The target of a voice: a speech model's id, `model/voice`, or a voice name of `model_id` or the default."""
        if voice and (row := self._models.get(voice)) is not None and row.kind == "speech":
            return self.find(voice, "speech")
        if voice and model_id is None and "/" in voice:
            model, _, name = voice.rpartition("/")
            if model in self._models:
                return replace(self.find(model, "speech"), voice=name)
        target = self.find(model_id, "speech")
        return replace(target, voice=voice) if voice else target

    @asynccontextmanager
    async def chat(self, request: ChatRequest, *, wire: str) -> AsyncIterator[EventStream[Any]]:
        """Open a chat stream: `async with gateway.chat(request, wire="openai") as events`."""
        target = self.find(request.model or None)
        provider = cast(ChatProvider, await self._providers.get(target.provider, "chat"))
        check_chat(request, provider, self.settings.limits.prompt_characters)
        upstream = replace(request, model=target.model.upstream, options=target.model.options)
        async with self._stream(lambda: provider.stream(upstream), target, wire) as events:
            yield events

    @asynccontextmanager
    async def speech(self, request: SpeechRequest, *, wire: str) -> AsyncIterator[EventStream[Any]]:
        """Open a speech stream; its audio is in `request.format`."""
        target = self.find_voice(request.voice, request.model or None)
        check_text(request.text, "input")
        provider = await self.voice(target)
        if len(request.text) > self.settings.limits.prompt_characters:
            raise PayloadTooLarge(f"The text is longer than {self.settings.limits.prompt_characters} characters.")
        upstream = _upstream_speech(request, target)

        def source() -> AsyncGenerator[AudioEvent | Finished, None]:
            return _finished(synthesize(provider, upstream), lambda: len(request.text))

        async with self._stream(source, target, wire) as events:
            yield events

    @asynccontextmanager
    async def spoken_chat(
        self, chat: ChatRequest, speech: SpeechRequest, *, wire: str, heard: HeardText
    ) -> AsyncIterator[AsyncIterator[StreamEvent]]:
        """Open a chat stream that speaks while it is written; `heard` learns what was sent as audio."""
        target = self.find_voice(speech.voice, speech.model or None)
        provider, upstream = await self.voice(target), _upstream_speech(speech, target)
        async with self.chat(chat, wire=wire) as events:
            patience = self._patience(target.provider)
            async with aclosing(speak(events, provider, upstream, heard=heard, patience=patience)) as spoken:
                yield _metered(spoken, events.meter)

    @asynccontextmanager
    async def speech_feed(
        self, feed: SpeechFeed, request: SpeechRequest, *, wire: str
    ) -> AsyncIterator[EventStream[Any]]:
        """Open a speech stream of a text that is still being written; how long its writer pauses is not bounded."""
        target = self.find_voice(request.voice, request.model or None)
        provider, upstream = await self.voice(target), _upstream_speech(request, target)
        heard, patience = HeardText(), self._patience(target.provider)

        def source() -> AsyncGenerator[AudioEvent | Finished, None]:
            return _finished(
                speak_feed(feed, provider, upstream, heard=heard, patience=patience), lambda: heard.characters
            )

        async with self._stream(source, target, wire, Patience(first_event=None, idle=None)) as events:
            yield events

    @asynccontextmanager
    async def transcribe(self, request: TranscriptionRequest, *, wire: str) -> AsyncIterator[EventStream[Any]]:
        """Open a transcription stream: text deltas, then `Finished`."""
        target = self.find(request.model or None, "transcription")
        provider = cast(TranscriptionProvider, await self._providers.get(target.provider, "transcription"))
        upstream = replace(request, model=target.model.upstream, options=target.model.options)
        async with self._stream(lambda: provider.transcribe(upstream), target, wire) as events:
            yield events

    async def voice(self, target: Target) -> SpeechProvider:
        """The speech provider of `target`, for `speak`."""
        return cast(SpeechProvider, await self._providers.get(target.provider, "speech"))

    def demand_room(self) -> None:
        """Raises RateLimited when every stream is in use."""
        most = self.settings.limits.streams
        if self._open >= most:
            raise RateLimited(f"All {most} streams are in use; try again in a moment.", retry_after=1)

    async def warm(self) -> None:
        """Build every configured provider, then load the embedded models (`local.warm`), so that no caller waits."""
        used = dict.fromkeys((row.provider, row.kind) for row in self._models.values())
        cold: list[tuple[str, Kind, Warmable]] = []
        for name, kind in used:
            try:
                provider = await self._providers.get(self._rows[name], kind)
            except GatewayError as error:
                _not_ready(name, kind, error)
            else:
                if isinstance(provider, Warmable) and self.settings.local.warm:
                    cold.append((name, kind, provider))
        for name, kind, voice_or_model in cold:
            try:
                await voice_or_model.warm()
            except GatewayError as error:
                _not_ready(name, kind, error)

    async def aclose(self) -> None:
        """Close every provider that was built."""
        await self._providers.aclose()

    @asynccontextmanager
    async def _stream(
        self,
        source: Callable[[], AsyncGenerator[Any, None]],
        target: Target,
        wire: str,
        patience: Patience | None = None,
    ) -> AsyncIterator[EventStream[Any]]:
        self.demand_room()
        if self._open == 0:
            self._busy_since = time.time()
        self._open += 1
        patience = patience or self._patience(target.provider)
        meter = Meter(wire, target.model.id, target.provider.name)
        try:
            async with open_stream(source, model=target.model.id, meter=meter, patience=patience) as events:
                yield events
        finally:
            self._open -= 1
            if self._open == 0:
                self._idle_since = time.time()

    def _patience(self, row: ProviderRow) -> Patience:
        limits = self.settings.limits
        return Patience(
            row.first_event_seconds or limits.first_event_seconds, row.idle_seconds or limits.idle_seconds, row.retries
        )

    def _open_row(self, model_id: str, kind: Kind) -> ModelRow | None:
        """`provider/upstream` for a provider row that says `open: true`."""
        name, _, upstream = model_id.partition("/")
        row = self._rows.get(name)
        if row is None or not row.open or not upstream:
            return None
        return ModelRow(id=model_id, provider=name, upstream=upstream, kind=kind)


def _not_ready(name: str, kind: Kind, error: GatewayError) -> None:
    """Whoever asks for its models is told the same; the other providers serve."""
    log.warning("provider %r is not ready for %s: %s", name, kind, error.message)


async def _finished(
    audio: AsyncGenerator[AudioEvent, None], characters: Callable[[], int]
) -> AsyncGenerator[AudioEvent | Finished, None]:
    """Speech with the terminal event that a `SpeechProvider` leaves to us: its clean end is its marker."""
    async with aclosing(audio):
        async for event in audio:
            yield event
    yield Finished(FinishReason.STOP, Usage(characters=characters()))


async def _metered(spoken: AsyncIterator[StreamEvent], meter: Meter) -> AsyncIterator[StreamEvent]:
    """A spoken chat, whose audio and whose voice's failure its chat's meter cannot see by itself."""
    async for event in spoken:
        if isinstance(event, AudioDelta):
            meter.audio()
        elif isinstance(event, Failed):
            meter.end(event)
        yield event


def _upstream_speech(request: SpeechRequest, target: Target) -> SpeechRequest:
    return replace(request, model=target.model.upstream, voice=target.voice, options=target.model.options)
