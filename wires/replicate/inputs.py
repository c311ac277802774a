"""Parse: the body of a create and its `input` -> what to ask the gateway for.

Field names differ between Replicate's language models, so the common ones are all taken; unknown ones are ignored, as
the models there do.
"""

from __future__ import annotations

import json
import re
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError

from gateway.checks import check_text
from gateway.errors import InvalidRequest
from gateway.request import ChatRequest, Image, Message, Part, Role, Sampling, SpeechRequest, Text, text_message
from wires.chat_messages import MessageBody, OpenBody, parse_messages
from wires.replicate.errors import invalid

Body = TypeVar("Body", bound=BaseModel)
WebhookEvent = Literal["start", "output", "logs", "completed"]
WEBHOOK_EVENTS: tuple[WebhookEvent, ...] = ("start", "output", "logs", "completed")

DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(ms|h|m|s|(?![0-9.]))\s*")
UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001, "": 1.0}
LONGEST_WAIT = 60


class CreateBody(OpenBody):
    """The body of a create. `stream` is taken and changes nothing: a model that can stream always may be read so."""

    input: dict[str, Any]
    version: str | None = None
    webhook: str | None = None
    webhook_events_filter: list[WebhookEvent] | None = None
    webhook_completed: str | None = None


class ChatInput(OpenBody):
    """`input` of a language model."""

    prompt: str | None = None
    messages: list[MessageBody] | None = None
    system_prompt: str | None = None
    system: str | None = None
    image: str | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    max_new_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=5)
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_k: int | None = None
    stop_sequences: str | list[str] | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None


class SpeechInput(OpenBody):
    """`input` of a voice."""

    text: str | None = None
    prompt: str | None = None
    voice: str | None = None
    speed: float = Field(default=1.0, ge=0.25, le=4)


def parse_body(raw: bytes) -> CreateBody:
    """A create's body; its content type is not looked at, since curl's `-d` calls JSON a form."""
    try:
        value = json.loads(raw or b"{}")
    except (ValueError, RecursionError):
        raise InvalidRequest("The body is not valid JSON.") from None
    if not isinstance(value, dict):
        raise InvalidRequest("The body must be a JSON object with an 'input'.")
    check_text(json.dumps(value, ensure_ascii=False), "input")
    return _validated(CreateBody, value, "")


def parse_chat(model: str, values: dict[str, Any]) -> ChatRequest:
    """The request for a language model. Raises InvalidRequest that names the field of `input` at fault."""
    body = _validated(ChatInput, values, "input.")
    return ChatRequest(
        model=model,
        messages=_messages(body),
        sampling=Sampling(
            max_tokens=body.max_tokens or body.max_new_tokens or body.max_completion_tokens,
            temperature=body.temperature,
            top_p=body.top_p,
            top_k=body.top_k if body.top_k and body.top_k > 0 else None,
            stop=_stops(body),
            seed=body.seed,
            presence_penalty=body.presence_penalty,
            frequency_penalty=body.frequency_penalty,
        ),
    )


def parse_speech(model: str, values: dict[str, Any]) -> SpeechRequest:
    """The request for a voice."""
    body = _validated(SpeechInput, values, "input.")
    text = body.text or body.prompt
    if not text:
        raise invalid("text is required.", "input.text")
    return SpeechRequest(model=model, text=text, voice=body.voice, speed=body.speed)


def parse_wait(prefer: str) -> int | None:
    """Seconds to hold a create, by its `Prefer` header; None when it does not ask for that."""
    for preference in re.split(r"[,;]", prefer):
        name, _, value = preference.strip().partition("=")
        if name.strip().lower() == "wait":
            value = value.strip().strip('"')
            # A longer number is above the longest wait, and Python refuses to read very long ones.
            short = value.isdecimal() and len(value) < 10
            return min(max(int(value), 1), LONGEST_WAIT) if short else LONGEST_WAIT
    return None


def parse_duration(text: str) -> float | None:
    """Seconds of a `Cancel-After` header such as `90`, `30s` or `1h30m`; None when it is not there."""
    text = text.strip().lower()
    if not text:
        return None
    # One part after the other: an expression for all of them tries every way of cutting a long number into parts.
    seconds, place = 0.0, 0
    while place < len(text):
        part = DURATION.match(text, place)
        if part is None:
            raise invalid("Cancel-After must be a duration such as '30s', '5m' or '1h30m'.", "Cancel-After")
        seconds, place = seconds + float(part[1]) * UNITS[part[2]], part.end()
    return seconds


def _messages(body: ChatInput) -> tuple[Message, ...]:
    system = body.system_prompt or body.system
    messages = [text_message(Role.SYSTEM, system)] if system else []
    messages += parse_messages(body.messages or [])
    if body.prompt or body.image:
        parts: list[Part] = [Text(body.prompt)] if body.prompt else []
        messages.append(Message(Role.USER, (*parts, *([Image(body.image)] if body.image else []))))
    if not any(message.role is not Role.SYSTEM for message in messages):
        raise invalid("prompt is required.", "input.prompt")
    return tuple(messages)


def _stops(body: ChatInput) -> tuple[str, ...]:
    """`stop_sequences` as text is a list separated by commas, as the Llama models there describe it."""
    found = body.stop_sequences if body.stop_sequences is not None else body.stop
    if isinstance(found, str):
        found = found.split(",") if body.stop_sequences is not None else [found]
    return tuple(stop for stop in found or () if stop)


def _validated(model: type[Body], values: dict[str, Any], where: str) -> Body:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = where + ".".join(str(part) for part in problem["loc"])
        raise invalid(f"{place}: {problem['msg']}.", place) from None
