"""What a session gives out: server events in the order they are to be sent, and commands to the pump."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gateway.errors import GatewayError
from gateway.heard import HeardText
from gateway.request import ChatRequest, SpeechRequest, TranscriptionRequest

ServerEvent = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Respond:
    """Ask the model, and the voice unless `speech` is None; the stream's events go to `Session.played`."""

    response_id: str
    chat: ChatRequest
    speech: SpeechRequest | None
    heard: HeardText
    may_forget: bool
    """Whether the oldest turns may be left out when the model's context is full."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop what `Respond` began: nothing more of that response may go out."""

    response_id: str


@dataclass(frozen=True, slots=True)
class Transcribe:
    """Write down a recording; the stream's events go to `Session.transcribed`."""

    key: str
    request: TranscriptionRequest


@dataclass(frozen=True, slots=True)
class Listen:
    """Look for speech in `pcm`; the probabilities go to `Session.listened`. `fresh` begins a new listener."""

    pcm: bytes
    rate: int
    fresh: bool


@dataclass(frozen=True, slots=True)
class HangUp:
    """Close the socket after what was said before."""

    code: int
    reason: str


RATE_LIMITED = "rate_limit_exceeded"
Command = Respond | Stop | Transcribe | Listen | HangUp


class Outgoing:
    """Collects events and commands until the pump takes them. `standing` says how the caller's limits stand."""

    def __init__(self, standing: Callable[[], list[dict[str, Any]]] = list) -> None:
        self._standing = standing
        self._waiting: list[ServerEvent | Command] = []

    def say(self, kind: str, **fields: Any) -> None:
        """Have the server event `kind` sent."""
        self._waiting.append({"type": kind, "event_id": new_id("event"), **fields})

    def order(self, command: Command) -> None:
        """Have the pump do something."""
        self._waiting.append(command)

    def error(self, error: GatewayError, event_id: str | None = None) -> None:
        """Say an error, which leaves the session open. `event_id` is that of the client event that caused it."""
        self.say("error", error=error_body(error) | {"param": error.param, "event_id": event_id})

    def rate_limits(self) -> None:
        """Say how the caller's limits stand, where there are any."""
        if limits := self._standing():
            self.say("rate_limits.updated", rate_limits=limits)

    def take(self) -> list[ServerEvent | Command]:
        """All that was collected, in order."""
        waiting, self._waiting = self._waiting, []
        return waiting


def error_body(error: GatewayError) -> dict[str, Any]:
    """The part of an error that events and failed responses share. OpenAI has one code for whatever is a 429."""
    kind = "server_error" if error.status >= 500 else "invalid_request_error"
    code = RATE_LIMITED if error.status == 429 else error.code
    return {"type": kind, "code": code, "message": error.message}


def new_id(kind: str) -> str:
    """An id that no other object of any session has."""
    return f"{kind}_{secrets.token_hex(10)}"
