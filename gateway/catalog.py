"""The Gateway: public model id -> provider and upstream id. This is what wires see of everything southbound.

It builds a provider when it is first needed and closes them all.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

from gateway.config import Kind, ModelRow, ProviderRow, Settings
from gateway.errors import GatewayError, InvalidRequest, NotFound, PayloadTooLarge, RateLimited, Unsupported
from gateway.events import AudioDelta, AudioEvent, Failed, Finished, FinishReason, StreamEvent, Usage
from gateway.ports import ChatProvider, Provider, SpeechProvider, TranscriptionProvider, Warmable
from gateway.request import ChatRequest, Image, SpeechRequest, Text, TranscriptionRequest
from gateway.speech import HeardText, SpeechFeed, speak, speak_feed, synthesize
from gateway.streams import EventStream, Patience, open_stream
from gateway.telemetry import Meter

log = logging.getLogger("polywire")

Builder = Callable[[ProviderRow, Kind, Settings], Provider]
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
        self._build = build
        self._rows = {row.name: row for row in settings.providers}
        self._models = {row.id: row for row in settings.models}
        self._providers: dict[tuple[str, Kind], Provider] = {}
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
        if voice and "/" in voice:
            model, _, name = voice.rpartition("/")
            if (row := self._models.get(model)) is not None and row.kind == "speech":
                return replace(self.find(model, "speech"), voice=name)
        target = self.find(model_id, "speech")
        return replace(target, voice=voice) if voice else target

    def chat(self, request: ChatRequest, *, wire: str) -> AbstractAsyncContextManager[EventStream[Any]]:
        """Open a chat stream: `async with gateway.chat(request, wire="openai") as events`."""
        target = self.find(request.model or None)
        provider = cast(ChatProvider, self._provider(target.provider, "chat"))
        _check_chat(request, provider, self.settings.limits.prompt_characters)
        upstream = replace(request, model=target.model.upstream, options=target.model.options)
        return self._stream(lambda: provider.stream(upstream), target, wire)

    def speech(self, request: SpeechRequest, *, wire: str) -> AbstractAsyncContextManager[EventStream[Any]]:
        """Open a speech stream; its audio is in `request.format`."""
        target = self.find_voice(request.voice, request.model or None)
        provider = self.voice(target)
        if len(request.text) > self.settings.limits.prompt_characters:
            raise PayloadTooLarge(f"The text is longer than {self.settings.limits.prompt_characters} characters.")
        upstream = _upstream_speech(request, target)
        return self._stream(lambda: _finished(synthesize(provider, upstream), lambda: len(request.text)), target, wire)

    @asynccontextmanager
    async def spoken_chat(
        self, chat: ChatRequest, speech: SpeechRequest, *, wire: str, heard: HeardText
    ) -> AsyncIterator[AsyncIterator[StreamEvent]]:
        """Open a chat stream that speaks while it is written; `heard` learns what was sent as audio."""
        target = self.find_voice(speech.voice, speech.model or None)
        provider, upstream = self.voice(target), _upstream_speech(speech, target)
        async with self.chat(chat, wire=wire) as events:
            patience = self._patience(target.provider)
            async with aclosing(speak(events, provider, upstream, heard=heard, patience=patience)) as spoken:
                yield _metered(spoken, events.meter)

    def speech_feed(
        self, feed: SpeechFeed, request: SpeechRequest, *, wire: str
    ) -> AbstractAsyncContextManager[EventStream[Any]]:
        """Open a speech stream of a text that is still being written; how long its writer pauses is not bounded."""
        target = self.find_voice(request.voice, request.model or None)
        provider, upstream = self.voice(target), _upstream_speech(request, target)
        heard, patience = HeardText(), self._patience(target.provider)

        def source() -> AsyncGenerator[AudioEvent | Finished, None]:
            return _finished(
                speak_feed(feed, provider, upstream, heard=heard, patience=patience), lambda: heard.characters
            )

        return self._stream(source, target, wire, Patience(first_event=None, idle=None))

    def transcribe(self, request: TranscriptionRequest, *, wire: str) -> AbstractAsyncContextManager[EventStream[Any]]:
        """Open a transcription stream: text deltas, then `Finished`."""
        target = self.find(request.model or None, "transcription")
        provider = cast(TranscriptionProvider, self._provider(target.provider, "transcription"))
        upstream = replace(request, model=target.model.upstream, options=target.model.options)
        return self._stream(lambda: provider.transcribe(upstream), target, wire)

    def voice(self, target: Target) -> SpeechProvider:
        """The speech provider of `target`, for `speak`."""
        return cast(SpeechProvider, self._provider(target.provider, "speech"))

    def demand_room(self) -> None:
        """Raises RateLimited when every stream is in use."""
        most = self.settings.limits.streams
        if self._open >= most:
            raise RateLimited(f"All {most} streams are in use; try again in a moment.", retry_after=1)

    async def warm(self) -> None:
        """Load the embedded models that are configured (`local.warm`), so that no caller waits for them."""
        rows = [row for row in self._models.values() if self._rows[row.provider].type == "local"]
        for row in rows if self.settings.local.warm else ():
            try:
                provider = self._provider(self._rows[row.provider], row.kind)
                if isinstance(provider, Warmable):
                    await provider.warm()
            except GatewayError as error:
                # Whoever asks for the model is told the same; the other models are served.
                log.warning("model %r is not ready: %s", row.id, error.message)

    async def aclose(self) -> None:
        """Close every provider that was built."""
        providers, self._providers = self._providers, {}
        for provider in providers.values():
            try:
                await provider.aclose()
            except GatewayError:
                log.exception("provider %r did not close", provider.name)

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

    def _provider(self, row: ProviderRow, kind: Kind) -> Provider:
        provider = self._providers.get((row.name, kind))
        if provider is None:
            provider = self._providers[row.name, kind] = self._build(row, kind, self.settings)
        return provider

    def _open_row(self, model_id: str, kind: Kind) -> ModelRow | None:
        """`provider/upstream` for a provider row that says `open: true`."""
        name, _, upstream = model_id.partition("/")
        row = self._rows.get(name)
        if row is None or not row.open or not upstream:
            return None
        return ModelRow(id=model_id, provider=name, upstream=upstream, kind=kind)


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


def _check_chat(request: ChatRequest, provider: ChatProvider, most_characters: int) -> None:
    """Refuse what the provider cannot do before it is asked. Raises InvalidRequest, Unsupported or PayloadTooLarge."""
    if not request.messages:
        raise InvalidRequest("The request has no messages; send at least one.", param="messages")
    size = sum(len(part.text) for message in request.messages for part in message.parts if isinstance(part, Text))
    if size > most_characters:
        raise PayloadTooLarge(
            f"The prompt has {size} characters; at most {most_characters} are taken.", param="messages"
        )
    able = provider.capabilities
    has_image = any(isinstance(part, Image) for message in request.messages for part in message.parts)
    refused = [
        word
        for word, asked, can in (
            ("tools", bool(request.tools), able.tools),
            ("images", has_image, able.images),
            ("response_format", request.response_format is not None, able.response_format),
        )
        if asked and not can
    ]
    if refused:
        raise Unsupported(f"Model {request.model or 'default'!r} cannot use {' or '.join(refused)}.", param=refused[0])
