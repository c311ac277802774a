"""A conversation as one text, for models that take a prompt and no list of messages. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.errors import Unsupported
from gateway.request import Image, Message, Role, Text, ToolCall, ToolResult

SPEAKERS = {Role.USER: "User", Role.ASSISTANT: "Assistant", Role.TOOL: "Tool"}


def flatten(messages: Sequence[Message]) -> str:
    """A conversation as one prompt: a single question as it is, several turns with their speakers' names."""
    turns = [message for message in messages if message.role is not Role.SYSTEM]
    system = system_text(messages)
    if [turn.role for turn in turns] == [Role.USER]:
        said = words(turns[0])
    else:
        said = "\n\n".join([f"{SPEAKERS[turn.role]}: {words(turn)}" for turn in turns] + ["Assistant:"])
    return f"{system}\n\n{said}" if system else said


def system_text(messages: Sequence[Message]) -> str:
    """What all system messages say."""
    return "\n\n".join(words(message) for message in messages if message.role is Role.SYSTEM)


def words(message: Message) -> str:
    """All that a message says, as text. Raises Unsupported for an image."""
    pieces = []
    for part in message.parts:
        match part:
            case Text(text=text) | ToolResult(text=text):
                pieces.append(text)
            case ToolCall(name=name, arguments=arguments):
                pieces.append(f"{name}({arguments})")
            case Image():
                raise Unsupported("This model takes text only; leave the image out.", param="messages")
    return "".join(pieces)
