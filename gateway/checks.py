"""What is refused before a provider is asked."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.errors import InvalidRequest, PayloadTooLarge, Unsupported
from gateway.ports import ChatProvider
from gateway.request import ChatRequest, Image, Message, Reasoning, Text, ToolCall, ToolResult


def check_chat(request: ChatRequest, provider: ChatProvider, most_characters: int) -> None:
    """Refuse what the provider cannot do before it is asked. Raises InvalidRequest, Unsupported or PayloadTooLarge."""
    if not request.messages:
        raise InvalidRequest("The request has no messages; send at least one.", param="messages")
    size = sum(len(part.text) for message in request.messages for part in message.parts if isinstance(part, Text))
    if size > most_characters:
        raise PayloadTooLarge(
            f"The prompt has {size} characters; at most {most_characters} are taken.", param="messages"
        )
    for message in request.messages:
        for text in _texts(message):
            check_text(text, "messages")
    for text in (*request.sampling.stop, request.user or ""):
        check_text(text, "stop" if text in request.sampling.stop else "user")
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


def check_text(text: str, param: str) -> None:
    """Raises InvalidRequest for half of a surrogate pair: JSON can write one, but no upstream can be sent it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"The text holds half of a character (U+{ord(text[error.start]):04X}) at position {error.start}; "
            "send whole characters.",
            param=param,
        ) from None


def is_whole(text: str) -> bool:
    """Whether `text` has no half of a surrogate pair. One that has is the id of nothing: no store could hold it."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _texts(message: Message) -> Iterator[str]:
    for part in message.parts:
        match part:
            case Text() | Reasoning() | ToolResult():
                yield part.text
            case ToolCall():
                yield part.name
                yield part.arguments
            case Image():
                yield part.url
