"""The Realtime session as a state machine: client events, streams' events and time in, server events and commands out.

It does no I/O and reads no clock but the one it is given. Every method leaves what there is to send and do in `out`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from gateway.errors import Conflict, GatewayError, InvalidRequest, Unsupported
from gateway.events import Failed, StreamEvent
from wires.openai.realtime import client_events as client
from wires.openai.realtime.configuration import SessionConfig, voice_name
from wires.openai.realtime.conversation import Conversation
from wires.openai.realtime.input_audio import InputAudio
from wires.openai.realtime.items import Item, Part, Recording, parse_item
from wires.openai.realtime.outgoing import HangUp, Outgoing, new_id
from wires.openai.realtime.requests import Catalog, session_body
from wires.openai.realtime.responses import Responses
from wires.openai.realtime.transcripts import Transcripts
from wires.openai.realtime.turn_detection import SpeechStarted

TRUNCATE_TOLERANCE = 0.1
"""Seconds that a client may count more than it was sent, by rounding."""


@dataclass(frozen=True, slots=True)
class Opening:
    """What is known when a session begins. `clock` counts seconds; `expires_at` is `lifetime` of them later.

    `standing` gives the limits of `rate_limits.updated`, none when the caller has none.
    """

    model: str
    clock: Callable[[], float]
    expires_at: int
    lifetime: float
    config: SessionConfig = SessionConfig()  # noqa: RUF009 - frozen
    standing: Callable[[], list[dict[str, Any]]] = list


class Session:
    """One connection's session: `begin`, then whatever happens."""

    def __init__(self, catalog: Catalog, opening: Opening) -> None:
        self.out = Outgoing(opening.standing)
        self._catalog, self._opening, self._clock = catalog, opening, opening.clock
        self._config = opening.config
        self._id = new_id("sess")
        self._conversation = Conversation()
        self._input = InputAudio(self._config.audio.input.format, self._config.vad)
        self._transcripts = Transcripts(self.out, catalog)
        self._responses = Responses(
            self.out, catalog, opening.clock, opening.model, self._conversation, self._transcripts
        )
        self._turn_id = ""
        self._unanswered: Item | None = None
        self._ends = self._clock() + opening.lifetime
        self._idle_at: float | None = None
        self._idle_from_ms = 0.0

    @property
    def deadline(self) -> float:
        """When `expire` must be called, by the session's clock."""
        return self._ends if self._idle_at is None else min(self._ends, self._idle_at)

    @property
    def is_busy(self) -> bool:
        """Whether a response is being made."""
        return self._responses.are_busy

    def begin(self) -> None:
        """Greet the client."""
        self.out.say("session.created", session=self._body())

    def receive(self, event: client.ClientEvent | client.Malformed) -> None:
        """Do what the client says; what is wrong with it is an `error` event."""
        if isinstance(event, client.Malformed):
            self.out.error(event.error, event.event_id)
            return
        try:
            self._obey(event)
        except GatewayError as error:
            self.out.error(error, event.event_id)

    def listened(self, probabilities: Iterable[float]) -> None:
        """What was found in the audio of a `Listen`, window by window."""
        try:
            for probability in probabilities:
                found = self._input.listened(probability)
                if isinstance(found, SpeechStarted):
                    self._speech_started(found.at_ms)
                elif found is not None:
                    self._speech_stopped(found.at_ms)
        except GatewayError as error:
            self.out.error(error)

    def transcribed(self, key: str, event: StreamEvent) -> None:
        """The next event of a transcription."""
        item_id = self._transcripts.feed(key, event)
        if item_id is not None:
            error = event.error if isinstance(event, Failed) else None
            if self._responses.transcribed(item_id, error):
                self._answered()

    def played(self, response_id: str, event: StreamEvent) -> None:
        """The next event of a response's stream."""
        if self._responses.played(response_id, event):
            self._answered()

    def ahead(self, response_id: str) -> float:
        """Seconds of a response's audio that its client has and has not played yet."""
        return self._responses.ahead(response_id)

    def expire(self) -> None:
        """The deadline has passed."""
        now = self._clock()
        if now >= self._ends:
            self._ends = now + self._opening.lifetime
            minutes = round(self._opening.lifetime / 60)
            self.out.error(InvalidRequest(f"A session ends after {minutes} minutes.", code="session_expired"))
            self.out.order(HangUp(1000, "session_expired"))
        elif self._idle_at is not None and now >= self._idle_at:
            self._idle_at = None
            self._idle()

    def _obey(self, event: client.ClientEvent) -> None:
        match event:
            case client.Append(audio=audio):
                if (listen := self._input.append(audio)) is not None:
                    self.out.order(listen)
            case client.SessionUpdate(session=update):
                self._update(update)
            case client.ResponseCreate(response=params):
                self._create(params or client.ResponseParams())
            case client.ResponseCancel(response_id=response_id):
                self._responses.cancel(response_id)
                self._answered()
            case client.Commit():
                self._commit()
            case client.Clear():
                self._input.clear()
                self.out.say("input_audio_buffer.cleared")
            case client.OutputClear():
                raise Unsupported("output_audio_buffer.clear is for WebRTC; use response.cancel.", param="type")
            case _:
                self._obey_item(event)

    def _obey_item(
        self, event: client.ItemCreate | client.ItemRetrieve | client.ItemDelete | client.ItemTruncate
    ) -> None:
        match event:
            case client.ItemCreate():
                self._add(parse_item(event.item, self._config.audio.input.format), event.previous_item_id)
            case client.ItemRetrieve(item_id=item_id):
                self.out.say("conversation.item.retrieved", item=self._conversation.find(item_id).body())
            case client.ItemDelete(item_id=item_id):
                self._conversation.remove(item_id)
                self.out.say("conversation.item.deleted", item_id=item_id)
            case client.ItemTruncate():
                self._truncate(event)
            case _:
                assert_never(event)

    def _update(self, update: Mapping[str, Any]) -> None:
        config = self._config.updated(update)
        before, after = voice_name(self._config.audio.output.voice), voice_name(config.audio.output.voice)
        if after != before:
            if self._responses.has_spoken:
                raise Conflict(
                    "The voice cannot be changed once it has been heard.",
                    code="cannot_update_voice",
                    param="session.audio.output.voice",
                )
            self._catalog.find_voice(after or None)
        self._config = config
        self._input.configure(config.audio.input.format, config.vad)
        if config.vad is None or config.vad.idle_timeout_ms is None:
            self._idle_at = None
        self.out.say("session.updated", session=self._body())

    def _add(self, item: Item, after: str | None = None) -> None:
        self._conversation.add(item, after)
        previous = self._conversation.previous_id(item)
        self.out.say("conversation.item.added", previous_item_id=previous, item=item.body())
        self.out.say("conversation.item.done", previous_item_id=previous, item=item.body())

    def _truncate(self, event: client.ItemTruncate) -> None:
        item = self._conversation.find(event.item_id)
        spoken = item.parts[0].spoken if item.parts and event.content_index == 0 else None
        if spoken is None:
            raise InvalidRequest(
                "Only the spoken part of an assistant's message can be cut.", code="invalid_value", param="item_id"
            )
        seconds = event.audio_end_ms / 1000
        if seconds > spoken.sent + TRUNCATE_TOLERANCE:
            raise InvalidRequest(
                f"The item has {round(spoken.sent * 1000)} ms of audio, so it cannot end at {event.audio_end_ms} ms.",
                code="invalid_value",
                param="audio_end_ms",
            )
        spoken.cut = min(seconds, spoken.sent)
        where = {"item_id": item.id, "content_index": 0}
        self.out.say("conversation.item.truncated", **where, audio_end_ms=event.audio_end_ms)

    def _speech_started(self, at_ms: float) -> None:
        self._turn_id, self._idle_at = new_id("item"), None
        self.out.say("input_audio_buffer.speech_started", audio_start_ms=round(at_ms), item_id=self._turn_id)
        if self._config.vad is not None and self._config.vad.interrupt_response:
            self._responses.interrupt()

    def _speech_stopped(self, at_ms: float) -> None:
        self.out.say("input_audio_buffer.speech_stopped", audio_end_ms=round(at_ms), item_id=self._turn_id)
        item = self._commit_audio(self._input.take(at_ms), self._turn_id)
        if self._config.vad is not None and self._config.vad.create_response:
            self._answer(item)

    def _commit(self) -> None:
        if self._input.is_empty:
            raise InvalidRequest(
                "Error committing input audio buffer: buffer too small. Append audio first.",
                code="input_audio_buffer_commit_empty",
            )
        item_id = self._turn_id if self._input.speaking else new_id("item")
        self._commit_audio(self._input.take(), item_id)

    def _commit_audio(self, pcm: bytes, item_id: str, transcript: str | None = None) -> Item:
        self._idle_at = None
        recording = Recording(pcm, self._input.rate, transcript=transcript)
        item = Item("message", id=item_id, parts=[Part("input_audio", recording=recording)])
        self.out.say("input_audio_buffer.committed", previous_item_id=self._conversation.last_id, item_id=item_id)
        self._add(item)
        if self._config.audio.input.transcription is not None:
            self._transcripts.ask(item, self._config.audio.input.transcription, said=True)
        return item

    def _answer(self, turn: Item | None) -> None:
        """Answer what was said; when an answer is running that is not to be interrupted, after it."""
        if self._config.type == "transcription":
            return
        if turn is not None and self._responses.active is not None:
            self._unanswered = turn
            return
        try:
            self._create(client.ResponseParams(), turn)
        except GatewayError as error:
            self.out.error(error)

    def _create(self, params: client.ResponseParams, turn: Item | None = None) -> None:
        if self._config.type == "transcription":
            raise Unsupported("A transcription session makes no responses; connect with ?model= for them.")
        self._responses.create(params, self._config, turn)
        if params.conversation == "auto":
            self._unanswered, self._idle_at = None, None

    def _answered(self) -> None:
        """A response has ended: answer what was said meanwhile, or wait for the user as long as is configured."""
        if self._responses.active is not None:
            return
        turn, self._unanswered = self._unanswered, None
        if turn is not None:
            self._answer(turn)
            return
        vad = self._config.vad
        if vad is not None and vad.idle_timeout_ms is not None and not self._input.speaking:
            self._idle_at = self._responses.quiet_at + vad.idle_timeout_ms / 1000
            self._idle_from_ms = self._input.end_ms

    def _idle(self) -> None:
        item_id, end_ms = new_id("item"), self._input.end_ms
        self.out.say(
            "input_audio_buffer.timeout_triggered",
            audio_start_ms=round(min(self._idle_from_ms, end_ms)),
            audio_end_ms=round(end_ms),
            item_id=item_id,
        )
        self._commit_audio(self._input.take(), item_id, transcript="")
        self._answer(None)

    def _body(self) -> dict[str, Any]:
        return session_body(self._config, self._id, self._opening.model, self._opening.expires_at, self._catalog)
