"""The Gateway: public model id -> provider and upstream id. All that wires see of the south; it closes it all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any, cast

from gateway.allowance import Allowance, estimate
from gateway.callers import who_asks
from gateway.checks import check_chat, check_text
from gateway.config import CONNECTOR, Kind, ModelRow, ProviderRow, Settings
from gateway.connector import Connector
from gateway.errors import GatewayError, InvalidRequest, NotFound, PayloadTooLarge, UpstreamTimeout
from gateway.events import AudioEvent, Failed, Finished, FinishReason, StreamEvent
from gateway.patience import Patience
from gateway.ports import (
    ChatProvider,
    ConnectorProvider,
    SpeechProvider,
    Store,
    TranscriptionProvider,
    Warmable,
)
from gateway.providers import Builder, Providers
from gateway.registered import Registered
from gateway.request import ChatRequest, SpeechRequest, TranscriptionRequest
from gateway.room import Room
from gateway.speech import HeardText, SpeechFeed, speak, speak_feed, synthesize
from gateway.speech_events import finished, metered
from gateway.stopping import Stopping
from gateway.streams import EventStream, open_stream
from gateway.target import Plan, Target
from gateway.telemetry import Meter

log = logging.getLogger("polywire")

CONNECTORS = ProviderRow(name=CONNECTOR, type=CONNECTOR, retries=0)
"""The provider of every registered model."""
DEFAULT_IDS: dict[Kind, str] = {"chat": "default", "speech": "voice", "transcription": "transcriber"}


Streaming = AbstractAsyncContextManager[EventStream[Any]]


class Gateway:
    """Opens streams on any configured or registered model. One per worker; `aclose` closes every provider it built."""

    def __init__(self, settings: Settings, build: Builder, store: Store | None = None) -> None:
        self.settings = settings
        self.registered = Registered(store, settings) if store is not None else None
        self._rows = {row.name: row for row in settings.providers}
        self._models = {row.id: row for row in settings.models}
        self._providers = Providers(settings, build)
        self.allowance = Allowance(settings, store)
        self._room = Room(settings, store)
        self.stopping = Stopping()

    @property
    def activity(self) -> tuple[bool, float]:
        """Whether streams are at work, and since when that is so, in Unix seconds."""
        return self._room.activity

    def models(self) -> Iterable[ModelRow]:
        """Every configured model that a client may name, in the order of the configuration."""
        return self._models.values()

    async def all_models(self) -> list[ModelRow]:
        """Every configured model, and those that were registered and that this caller may use.

        While the store does not answer these are the configured ones.
        """
        rows = list(self._models.values())
        if self.registered is not None:
            try:
                rows += [_registered_row(kept.id) for kept in await self.registered.models.all(who_asks())]
            except GatewayError as error:
                if error.code != "store_unavailable":
                    raise
        return rows

    def find(self, model_id: str | None, kind: Kind = "chat") -> Target:
        """The target of a configured model; None means this kind's default. Raises NotFound or InvalidRequest."""
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

    async def resolve(self, model_id: str | None, kind: Kind = "chat") -> Target:
        """The target of a configured model or of one that was registered. Raises GatewayError."""
        try:
            return self.find(model_id, kind)
        except NotFound:
            if self.registered is None or model_id is None or kind != "chat":
                raise
            connector = await self.registered.open(model_id, who_asks())
            if connector is None:
                raise
        provider = CONNECTORS.model_copy(
            update={"first_event_seconds": connector.patience(), "idle_seconds": connector.patience()}
        )
        return Target(_registered_row(model_id), provider, connector=connector)

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

    def chat(self, request: ChatRequest, *, wire: str) -> Streaming:
        """Open a chat stream: `async with gateway.chat(request, wire="openai") as events`."""

        async def plan() -> Plan:
            target = await self.resolve(request.model or None)
            provider = cast(ChatProvider, await self._providers.get(target.provider, "chat"))
            check_chat(request, provider, self.settings.limits.prompt_characters)
            upstream = request.for_upstream(target.model.upstream, target.options)
            return Plan(target, lambda: provider.stream(upstream), estimate(request))

        return self._stream(plan, wire)

    async def ask(self, connector: Connector, parameters: Mapping[str, str], *, wire: str, model: str) -> Any:
        """The answer of a registered model's remote service as it is, not streamed. Raises GatewayError."""
        provider = cast(ConnectorProvider, await self._providers.get(CONNECTORS, "chat"))
        limit = connector.patience() or self.settings.limits.first_event_seconds
        self.stopping.demand()
        meter = Meter(wire, model, CONNECTOR)
        try:
            async with self._room.take(who_asks().owner), asyncio.timeout(limit):
                answer = await provider.ask(connector, parameters)
            meter.end(Finished(FinishReason.STOP))
            return answer
        except TimeoutError:
            late = UpstreamTimeout(f"The remote service of model {model!r} did not answer in {limit:g} s.")
            meter.end(Failed(late))
            raise late from None
        except GatewayError as error:
            meter.end(Failed(error))
            raise
        finally:
            meter.close()

    def speech(self, request: SpeechRequest, *, wire: str) -> Streaming:
        """Open a speech stream; its audio is in `request.format`."""

        async def plan() -> Plan:
            target = self.find_voice(request.voice, request.model or None)
            check_text(request.text, "input")
            provider = await self.voice(target)
            if len(request.text) > self.settings.limits.prompt_characters:
                raise PayloadTooLarge(f"The text is longer than {self.settings.limits.prompt_characters} characters.")
            upstream = _upstream_speech(request, target)
            return Plan(target, lambda: synthesize(provider, upstream))

        return self._stream(plan, wire)

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
                yield metered(spoken, events.meter)

    def speech_feed(self, feed: SpeechFeed, request: SpeechRequest, *, wire: str) -> Streaming:
        """Open a speech stream of a text that is still being written; how long its writer pauses is not bounded."""

        async def plan() -> Plan:
            target = self.find_voice(request.voice, request.model or None)
            provider, upstream = await self.voice(target), _upstream_speech(request, target)
            heard, patience = HeardText(), self._patience(target.provider)

            def source() -> AsyncGenerator[AudioEvent | Finished, None]:
                return finished(
                    speak_feed(feed, provider, upstream, heard=heard, patience=patience), lambda: heard.characters
                )

            return Plan(target, source, patience=Patience(first_event=None, idle=None))

        return self._stream(plan, wire)

    def transcribe(self, request: TranscriptionRequest, *, wire: str) -> Streaming:
        """Open a transcription stream: text deltas, then `Finished`."""

        async def plan() -> Plan:
            target = self.find(request.model or None, "transcription")
            provider = cast(TranscriptionProvider, await self._providers.get(target.provider, "transcription"))
            upstream = replace(request, model=target.model.upstream, options=target.model.options)
            return Plan(target, lambda: provider.transcribe(upstream))

        return self._stream(plan, wire)

    async def voice(self, target: Target) -> SpeechProvider:
        """The speech provider of `target`, for `speak`."""
        return cast(SpeechProvider, await self._providers.get(target.provider, "speech"))

    async def demand_room(self) -> None:
        """Raises GatewayError when no stream can begin: every one is in use, or this worker is being stopped."""
        self.stopping.demand()
        await self._room.demand(who_asks().owner)

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
        await self._room.aclose()

    @asynccontextmanager
    async def _stream(self, plan: Callable[[], Awaitable[Plan]], wire: str) -> AsyncIterator[EventStream[Any]]:
        planned = await plan()
        target, patience = planned.target, planned.patience or self._patience(planned.target.provider)
        self.stopping.demand()
        owner = who_asks().owner
        with self.stopping.work():
            async with self._room.take(owner), self.allowance.stream(owner, planned.tokens) as bill:
                meter = bill.meter = Meter(wire, target.model.id, target.provider.name)
                async with open_stream(
                    planned.source, model=target.model.id, meter=meter, patience=patience, stopping=self.stopping
                ) as events:
                    yield events

    def _patience(self, row: ProviderRow) -> Patience:
        limits = self.settings.limits
        first = row.first_event_seconds or limits.first_event_seconds
        return Patience(first, row.idle_seconds or limits.idle_seconds, row.retries)

    def _open_row(self, model_id: str, kind: Kind) -> ModelRow | None:
        """`provider/upstream` for a provider row that says `open: true`."""
        name, _, upstream = model_id.partition("/")
        row = self._rows.get(name)
        is_open = row is not None and row.open and upstream
        return ModelRow(id=model_id, provider=name, upstream=upstream, kind=kind) if is_open else None


def _not_ready(name: str, kind: Kind, error: GatewayError) -> None:
    """Whoever asks for its models is told the same; the other providers serve."""
    log.warning("provider %r is not ready for %s: %s", name, kind, error.message)


def _registered_row(id: str) -> ModelRow:
    return ModelRow(id=id, provider=CONNECTOR, upstream=id)


def _upstream_speech(request: SpeechRequest, target: Target) -> SpeechRequest:
    return replace(request, model=target.model.upstream, voice=target.voice, options=target.model.options)
