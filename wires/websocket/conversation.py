"""What a `/ws` socket remembers: the effective configuration and the conversation so far. Belongs to the connection."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gateway.errors import InvalidRequest
from gateway.events import AudioFormat
from gateway.request import ChatRequest, Message, Role, Sampling, Text, text_message
from wires.chat_messages import parse_messages
from wires.websocket.messages import Chat, Configure, audio_format


@dataclass(frozen=True, slots=True)
class Configuration:
    """What holds for a message that says nothing else. `voice` and `model` None mean the service's defaults."""

    model: str | None = None
    voice: str | None = None
    format: AudioFormat = AudioFormat()  # noqa: RUF009 - frozen
    system: str | None = None
    speak: bool = False
    input_rate: int = 24_000

    def changed(self, message: Configure) -> Configuration:
        """With what `message` names. Raises InvalidRequest."""
        given = message.model_dump(include={"model", "voice", "system", "speak"}, exclude_unset=True)
        if given.get("speak", False) is None:
            given["speak"] = False
        if message.input_rate is not None:
            given["input_rate"] = message.input_rate
        if message.format is not None:
            given["format"] = audio_format(message.format)
        return replace(self, **given)


class Conversation:
    """The history of one socket: user and assistant messages in turn."""

    def __init__(self) -> None:
        self.configuration = Configuration()
        self._history: list[Message] = []

    def request(self, message: Chat) -> ChatRequest:
        """The request that `message` asks for, with the history unless it brings its own messages."""
        if (message.text is None) == (message.messages is None):
            raise InvalidRequest("A chat message needs either text or messages.", param="text")
        configuration = self.configuration
        system = [text_message(Role.SYSTEM, configuration.system)] if configuration.system else []
        if message.messages is not None:
            messages = (*system, *parse_messages(message.messages))
        else:
            messages = (*system, *self._history, text_message(Role.USER, message.text or ""))
        return ChatRequest(
            model=message.model or configuration.model or "",
            messages=messages,
            sampling=Sampling(max_tokens=message.max_tokens, temperature=message.temperature),
        )

    def remember(self, request: ChatRequest, answer: str) -> None:
        """Keep a turn: the request's messages and what the client got of the answer. An empty answer keeps nothing.

        The newest turn may be told again, when it turns out that less of it was heard.
        """
        said = [message for message in request.messages if message.role is not Role.SYSTEM]
        if answer:
            self._history = [*said, Message(Role.ASSISTANT, (Text(answer),))]
        elif self._history[:-1] == said:
            self._history = said[:-1]

    def forget_oldest(self) -> bool:
        """Drop the oldest turn, when the model's context is full; False when there is none."""
        if not self._history:
            return False
        following = (index for index, message in enumerate(self._history) if index and message.role is Role.USER)
        del self._history[: next(following, len(self._history))]
        return True
