"""Plays a script of events, errors and delays: the double that tests use, and a provider for demonstrations.

Row: `path`, a YAML file that maps an upstream id to its steps. The upstream id `echo` says the prompt back
word by word, `pieces` the same in pieces cut anywhere, `conversation` all that it was given.
Steps: `{text: ..., times: 1}`, `{reasoning: ...}`, `{tool: {index, id, name, arguments}}`, `{delay: seconds}`,
`{silence: true}`, `{error: {status, message}}`, `{fault: message}` (an exception of no known kind),
`{finish: stop, usage: {...}}`.
"""

from __future__ import annotations

import asyncio
import math
import random
import re
from array import array
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from enum import Enum
from pathlib import Path
from typing import Any

import yaml

from gateway.config import ProviderRow, Settings
from gateway.errors import NotFound, error_class
from gateway.events import (
    AudioDelta,
    AudioEvent,
    AudioFormat,
    AudioStart,
    Delta,
    Finished,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from gateway.ports import Capabilities, SpeechLimits
from gateway.request import ChatRequest, Message, SpeechRequest, Text, ToolCall, ToolResult, TranscriptionRequest

RATE = 24_000
SECONDS_PER_CHARACTER = 0.06
PIECE_SECONDS = 0.1
_CYCLE = array("h", (int(8000 * math.sin(2 * math.pi * 440 / RATE * n)) for n in range(600))).tobytes()
"""Eleven waves of 440 Hz: the shortest piece that can be repeated."""


class Silence(Enum):
    """A step that waits until the stream is closed."""

    FOR_EVER = "for ever"


Step = Delta | Finished | Exception | float | Silence
Steps = Iterable[Step]


class ScriptedChat:
    """A `ChatProvider` whose answers are given. `opened` and `closed` count its generators."""

    capabilities = Capabilities()

    def __init__(self, row: ProviderRow, settings: Settings, scripts: dict[str, Steps] | None = None) -> None:
        self.name = row.name
        self._scripts = scripts if scripts is not None else _load(row.path)
        self.opened = 0
        self.closed = 0

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | Finished, None]:
        steps = self._scripts.get(request.model)
        if steps is None:
            speaker = _SPEAKERS.get(request.model)
            if speaker is None:
                raise NotFound(f"There is no script {request.model!r}.", provider=self.name, code="model_not_found")
            steps = speaker(request)
        self.opened += 1
        try:
            async with aclosing(_play(steps)) as events:
                async for event in events:
                    yield event
        finally:
            self.closed += 1

    async def aclose(self) -> None:
        """Nothing is held open."""


class ScriptedSpeech:
    """A `SpeechProvider` that hums: a 440 Hz tone as long as the text, or as its script says."""

    limits = SpeechLimits(characters=4096)

    def __init__(self, row: ProviderRow, settings: Settings) -> None:
        self.name = row.name
        self._scripts = _load(row.path)

    async def synthesize(self, request: SpeechRequest) -> AsyncGenerator[AudioEvent, None]:
        yield AudioStart(AudioFormat(rate=RATE))
        steps = self._scripts.get(request.model) or [TextDelta(request.text)]
        async with aclosing(_play(steps)) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    for piece in _hum(event.text, request.speed):
                        await asyncio.sleep(0)
                        yield piece

    async def aclose(self) -> None:
        """Nothing is held open."""


class ScriptedTranscription:
    """A `TranscriptionProvider` that hears its script's text, whatever was said."""

    def __init__(self, row: ProviderRow, settings: Settings) -> None:
        self.name = row.name
        self._scripts = _load(row.path)

    async def transcribe(self, request: TranscriptionRequest) -> AsyncGenerator[TextDelta | Finished, None]:
        async with aclosing(_play(self._scripts.get(request.model, ()))) as events:
            async for event in events:
                if isinstance(event, TextDelta | Finished):
                    yield event

    async def aclose(self) -> None:
        """Nothing is held open."""


def echo(request: ChatRequest) -> Iterator[Step]:
    """The last message's text, word by word."""
    words = re.findall(r"\S*\s*", request.messages[-1].text)
    yield from (TextDelta(word) for word in words if word)
    yield Finished(FinishReason.STOP, Usage(input_tokens=len(words), output_tokens=len(words)))


def pieces(request: ChatRequest) -> Iterator[Step]:
    """The last message's text in pieces of up to five characters, cut at places that follow from the text alone."""
    text = request.messages[-1].text
    cuts = random.Random(text)  # noqa: S311 - repeatable on purpose
    start = count = 0
    while start < len(text):
        end = start + cuts.randint(1, 5)
        yield TextDelta(text[start:end])
        start, count = end, count + 1
    yield Finished(FinishReason.STOP, Usage(input_tokens=count, output_tokens=count))


def conversation(request: ChatRequest) -> Iterator[Step]:
    """Every message in a line: who said it, its text, its calls and results."""
    lines = (f"{message.role}: {' '.join(_told(message))}" for message in request.messages)
    yield TextDelta("\n".join(lines))
    yield Finished(FinishReason.STOP)


def _told(message: Message) -> Iterator[str]:
    for part in message.parts:
        match part:
            case Text(text=text) | ToolResult(text=text):
                yield text
            case ToolCall(name=name, arguments=arguments):
                yield f"{name}({arguments})"


_SPEAKERS = {"echo": echo, "pieces": pieces, "conversation": conversation}


async def _play(steps: Steps) -> AsyncGenerator[Delta | Finished, None]:
    for step in steps:
        match step:
            case float() | int():
                await asyncio.sleep(step)
            case Silence():
                await asyncio.Event().wait()
            case Exception():
                raise step
            case _:
                yield step


def _hum(text: str, speed: float) -> Iterator[AudioDelta]:
    samples = int(RATE * SECONDS_PER_CHARACTER * len(text) / speed)
    piece = int(RATE * PIECE_SECONDS)
    for start in range(0, samples, piece):
        yield AudioDelta(_tone(start, min(piece, samples - start)))


def _tone(start: int, count: int) -> bytes:
    offset = start % (len(_CYCLE) // 2)
    return (_CYCLE * (count * 2 // len(_CYCLE) + 2))[offset * 2 : (offset + count) * 2]


def _load(path: Path | None) -> dict[str, Steps]:
    if path is None:
        return {}
    scripts = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {name: [event for step in steps for event in _parse(step)] for name, steps in scripts.items()}


def _parse(step: dict[str, Any]) -> Iterator[Step]:
    match step:
        case {"text": str(text)}:
            yield from [TextDelta(text)] * step.get("times", 1)
        case {"reasoning": str(text)}:
            yield ReasoningDelta(text)
        case {"tool": {"index": int(index), "id": str(call_id), "name": str(name), "arguments": str(arguments)}}:
            yield ToolCallStart(index, call_id, name)
            yield ToolCallDelta(index, arguments)
        case {"delay": float() | int() as seconds}:
            yield float(seconds)
        case {"silence": True}:
            yield Silence.FOR_EVER
        case {"error": {"status": int(status), "message": str(message)}}:
            # Asked again, a script would only say it again.
            yield error_class(status)(message, status=status, retryable=False)
        case {"fault": str(message)}:
            yield RuntimeError(message)
        case {"finish": str(reason)}:
            usage = step.get("usage")
            yield Finished(FinishReason(reason), Usage(**usage) if usage else None)
        case _:
            raise ValueError(f"{step!r} is not a step of a script")
