"""What is refused before a provider is asked."""

from __future__ import annotations

from gateway.errors import InvalidRequest, PayloadTooLarge, Unsupported
from gateway.ports import ChatProvider
from gateway.request import ChatRequest, Image, Text


def check_chat(request: ChatRequest, provider: ChatProvider, most_characters: int) -> None:
    """Refuse what the provider cannot do before it is asked. Raises InvalidRequest, Unsupported or PayloadTooLarge."""
    if not request.messages:
        raise InvalidRequest("The request has no messages; send at least one.", param="messages")
    size = sum(len(part.text) for message in request.messages for part in message.parts if isinstance(part, Text))
    if size > most_characters:
        raise PayloadTooLarge(
            f"The prompt has {size} characters; at most {most_characters} are taken.", param="messages"
        )
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
