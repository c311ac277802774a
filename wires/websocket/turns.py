"""What a turn on `/ws` can be: an answer of a model, spoken or not, or speech of a text that is whole or being written.

Each is checked when it is made, so that what is wrong with a message is said before a turn begins, and does its work
in `run`, which its connection may cancel at any point.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

from gateway.catalog import Gateway
from gateway.completion import collect
from gateway.errors import ContextLengthExceeded, InvalidRequest, RateLimited
from gateway.events import StreamEvent
from gateway.request import SpeechRequest, TranscriptionRequest
from gateway.speech import HeardText, SpeechFeed
from wires.websocket.conversation import Configuration, Conversation
from wires.websocket.messages import AudioCommit, Chat, Format, Speak, SpeakAppend, audio_format
from wires.websocket.recording import Recording
from wires.websocket.turn import Turn

MOST_WAITING_TEXTS = 32
"""Bare texts that may wait for their turn to be spoken."""


class ChatTurn:
    """An answer to what the client said, with its speech if it asked for that."""

    def __init__(self, gateway: Gateway, wire: str, conversation: Conversation, said: Chat) -> None:
        configuration = conversation.configuration
        self._gateway, self._wire = gateway, wire
        self._conversation, self._said = conversation, said
        self._request = conversation.request(said)
        speak = configuration.speak if said.speak is None else said.speak
        self._speech = speech_request("", configuration, said.voice, said.format) if speak else None
        self._heard = HeardText()
        self._played: float | None = None
        self._is_over = False
        if self._speech is not None:
            gateway.find_voice(self._speech.voice)

    async def demand_model(self) -> None:
        """Raises GatewayError when the model cannot be asked: better before the turn begins."""
        await self._gateway.resolve(self._request.model or None)

    async def run(self, turn: Turn) -> None:
        try:
            await self._answer(turn)
        finally:
            self._is_over = True
            self._remember(turn)

    def cut_off(self, turn: Turn, seconds: float) -> None:
        """So much of the speech was played and no more is going to be."""
        self._played = seconds
        if self._is_over:
            self._remember(turn)

    def _remember(self, turn: Turn) -> None:
        """What was not heard was not said."""
        answer = turn.text
        if self._speech is not None and self._played is not None:
            answer = self._heard.text_until(self._played)
        elif self._speech is not None and not turn.ended:
            answer = self._heard.text
        self._conversation.remember(self._request, answer)

    async def _answer(self, turn: Turn) -> None:
        while True:
            try:
                async with self._open() as events:
                    await turn.play(events)
                return
            except ContextLengthExceeded:
                if turn.text or self._said.messages is not None or not self._conversation.forget_oldest():
                    raise
                self._request = self._conversation.request(self._said)

    def _open(self) -> AbstractAsyncContextManager[AsyncIterator[StreamEvent]]:
        if self._speech is None:
            return self._gateway.chat(self._request, wire=self._wire)
        return self._gateway.spoken_chat(self._request, self._speech, wire=self._wire, heard=self._heard)


class VoiceTurn:
    """An answer to what the client said aloud, at the configured `input_rate`."""

    def __init__(self, gateway: Gateway, wire: str, conversation: Conversation, said: AudioCommit) -> None:
        self._gateway, self._wire = gateway, wire
        self._conversation, self._said = conversation, said
        self._pcm = b""
        self._chat: ChatTurn | None = None
        gateway.find(None, "transcription")

    async def demand_model(self) -> None:
        """Raises NotFound when there is no such model."""
        await self._gateway.resolve(self._said.model or self._conversation.configuration.model)

    def take(self, recording: Recording) -> None:
        """What was recorded is what the user says. Raises InvalidRequest when that is nothing."""
        self._pcm = recording.take()

    async def run(self, turn: Turn) -> None:
        rate = self._conversation.configuration.input_rate
        request = TranscriptionRequest("", self._pcm, rate, language=self._said.language)
        async with self._gateway.transcribe(request, wire=self._wire) as events:
            text = (await collect(events)).text.strip()
        await turn.transcript(text)
        if not text:
            raise InvalidRequest("No words were heard in the audio.", code="no_speech")
        self._chat = ChatTurn(self._gateway, self._wire, self._conversation, self._said.chat(text))
        await self._chat.run(turn)

    def cut_off(self, turn: Turn, seconds: float) -> None:
        """So much of the speech was played and no more is going to be."""
        if self._chat is not None:
            self._chat.cut_off(turn, seconds)


class WholeSpeech:
    """One text, spoken."""

    def __init__(self, gateway: Gateway, wire: str, configuration: Configuration, said: Speak) -> None:
        self._gateway, self._wire = gateway, wire
        self._request = speech_request(said.text, configuration, said.voice, said.format, said.speed)
        gateway.find_voice(self._request.voice)

    async def run(self, turn: Turn) -> None:
        async with self._gateway.speech(self._request, wire=self._wire) as events:
            await turn.play(events)


class FedSpeech:
    """A text that is spoken while its client still writes it."""

    def __init__(self, gateway: Gateway, wire: str, configuration: Configuration, said: SpeakAppend) -> None:
        self._gateway, self._wire = gateway, wire
        self._request = speech_request("", configuration, said.voice, said.format, said.speed)
        self.feed = SpeechFeed()
        gateway.find_voice(self._request.voice)

    async def run(self, turn: Turn) -> None:
        async with self._gateway.speech_feed(self.feed, self._request, wire=self._wire) as events:
            await turn.play(events)


class BareSpeech:
    """The seed form: texts that are spoken one after the other, each as one stream of audio with one header."""

    def __init__(self, gateway: Gateway, wire: str, configuration: Configuration, text: str) -> None:
        self._gateway, self._wire, self._configuration = gateway, wire, configuration
        self._texts = deque([text])

    def add(self, text: str) -> None:
        """Have `text` spoken after those before it. Raises RateLimited when too many wait."""
        if len(self._texts) >= MOST_WAITING_TEXTS:
            raise RateLimited(f"More than {MOST_WAITING_TEXTS} texts are waiting to be spoken; wait for their audio.")
        self._texts.append(text)

    async def run(self, turn: Turn) -> None:
        while self._texts:
            request = speech_request(self._texts.popleft(), self._configuration, None, None)
            async with self._gateway.speech(request, wire=self._wire) as events:
                await turn.play(events)


def speech_request(
    text: str, configuration: Configuration, voice: str | None, format: Format | None, speed: float = 1.0
) -> SpeechRequest:
    """Speech of `text` by what the message says, else by the configuration. Raises InvalidRequest."""
    wanted = configuration.format if format is None else audio_format(format)
    return SpeechRequest("", text, voice=voice or configuration.voice, format=wanted, speed=speed)
