"""A session without a socket, a model or a clock: tests give it events and see what it says and orders."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, TypeVar

from gateway.config import Kind, ModelRow, ProviderRow
from gateway.errors import NotFound
from gateway.events import AudioDelta, Finished, FinishReason, StreamEvent, TextDelta
from gateway.target import Target
from tests.realtime.sessions import Event, check
from wires.openai.realtime.client_events import parse
from wires.openai.realtime.configuration import opened
from wires.openai.realtime.outgoing import Command, HangUp, Listen, Respond, Stop, Transcribe
from wires.openai.realtime.session import Opening, Session

Ordered = TypeVar("Ordered", Respond, Stop, Transcribe, Listen, HangUp)
FINISHED = Finished(FinishReason.STOP)
SECOND = bytes(48_000)
"""One second of PCM."""


class Models:
    """A catalog with one model of each kind. `voices` names the voices there are; None means any."""

    def __init__(self, voices: tuple[str, ...] | None = None) -> None:
        self.voices = voices

    def find(self, model_id: str | None, kind: Kind = "chat") -> Target:
        ids: dict[Kind, str] = {"chat": "echo", "speech": "voice", "transcription": "transcriber"}
        if model_id not in (None, "", ids[kind]):
            raise NotFound(f"no {model_id}", code="model_not_found")
        return Target(
            ModelRow(id=ids[kind], provider="p", upstream="u", kind=kind), ProviderRow(name="p", type="local")
        )

    def find_voice(self, voice: str | None, model_id: str | None = None) -> Target:
        if voice and self.voices is not None and voice not in self.voices:
            raise NotFound(f"no voice {voice}", code="voice_not_found")
        return self.find(None, "speech")


class Stage:
    """`events` and `commands` are what the last step brought; `all_events` is all since the beginning."""

    def __init__(
        self,
        lifetime: float = 3600.0,
        voices: tuple[str, ...] | None = None,
        standing: Callable[[], list[dict[str, Any]]] = list,
        **session: Any,
    ) -> None:
        self.now = 100.0
        config = opened({"type": "realtime", **session})
        self.session = Session(
            Models(voices), Opening("echo", lambda: self.now, 1_800_000_000, lifetime, config, standing)
        )
        self.events: list[Event] = []
        self.all_events: list[Event] = []
        self.commands: list[Command] = []
        self.session.begin()
        self._take()

    def say(self, kind: str, **fields: Any) -> list[Event]:
        return self.send(json.dumps({"type": kind, **fields}))

    def send(self, message: str | bytes) -> list[Event]:
        self.session.receive(parse(message))
        return self._take()

    def write(self, text: str, role: str = "user") -> list[Event]:
        kind = "output_text" if role == "assistant" else "input_text"
        item = {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
        return self.say("conversation.item.create", item=item)

    def append(self, audio: bytes) -> list[Event]:
        return self.say("input_audio_buffer.append", audio=base64.b64encode(audio).decode())

    def respond(self, **response: Any) -> Respond:
        """Ask for a response; what the pump is to do for it."""
        self.say("response.create", response=response)
        return self.order(Respond)

    def order(self, kind: type[Ordered]) -> Ordered:
        found = [command for command in self.commands if isinstance(command, kind)]
        assert len(found) == 1, self.commands
        return found[0]

    def has(self, kind: type[Respond | Stop | Transcribe | Listen | HangUp]) -> bool:
        return any(isinstance(command, kind) for command in self.commands)

    def play(self, order: Respond, *events: StreamEvent) -> list[Event]:
        for event in events:
            self.session.played(order.response_id, event)
        return self._take()

    def speak(self, order: Respond, text: str, seconds: float) -> list[Event]:
        """A piece of text and its audio, as a voice makes them."""
        start = order.heard.characters and self._spoken
        self.play(order, TextDelta(text))
        order.heard.begin(text, start)
        order.heard.end(start + seconds)
        order.heard.hear(start + seconds)
        self._spoken = start + seconds
        return self.play(order, *[AudioDelta(bytes(4_800))] * round(seconds * 10))

    _spoken = 0.0

    def hear(self, probability: float, milliseconds: int) -> list[Event]:
        """Append audio in which speech is as probable as that in every window."""
        self.append(bytes(48 * milliseconds))
        self.session.listened([probability] * (milliseconds // 32))
        return self._take()

    def transcribe(self, order: Transcribe, *events: StreamEvent) -> list[Event]:
        for event in events:
            self.session.transcribed(order.key, event)
        return self._take()

    def expire(self) -> list[Event]:
        self.now = self.session.deadline
        self.session.expire()
        return self._take()

    def history(self) -> list[tuple[str, str]]:
        """What a model would read now: roles and texts."""
        self.say("response.create", response={"conversation": "none"})
        order = self.order(Respond)
        self.say("response.cancel", response_id=order.response_id)
        return [(str(message.role), message.text) for message in order.chat.messages]

    def _take(self) -> list[Event]:
        taken = self.session.out.take()
        self.events = [check(json.loads(json.dumps(item))) for item in taken if isinstance(item, dict)]
        self.commands = [item for item in taken if not isinstance(item, dict)]
        self.all_events += self.events
        return self.events
