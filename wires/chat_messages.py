"""OpenAI's message objects, which several wires take: bodies, and how they become `Message`s."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from gateway.errors import InvalidRequest, Unsupported
from gateway.request import Image, Message, Part, Role, Text, ToolCall, ToolResult

ROLES = {"developer": Role.SYSTEM, **{str(role): role for role in Role}}


class OpenBody(BaseModel):
    """A body whose unknown fields are kept and ignored."""

    model_config = ConfigDict(extra="allow")


class FunctionCall(OpenBody):
    name: str
    arguments: str = ""


class ToolCallBody(OpenBody):
    id: str
    function: FunctionCall


class ImageUrl(OpenBody):
    url: str
    detail: str | None = None


class ContentPart(OpenBody):
    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: ImageUrl | None = None


class MessageBody(OpenBody):
    role: Literal["developer", "system", "user", "assistant", "tool"]
    content: str | list[ContentPart] | None = None
    refusal: str | None = None
    tool_calls: list[ToolCallBody] | None = None
    tool_call_id: str | None = None


def parse_messages(messages: Sequence[MessageBody]) -> tuple[Message, ...]:
    """OpenAI messages, in order. Raises InvalidRequest with the index of the message at fault."""
    return tuple(_message(index, message) for index, message in enumerate(messages))


def _message(index: int, body: MessageBody) -> Message:
    where = f"messages[{index}]"
    if body.role == "tool":
        if body.tool_call_id is None:
            raise InvalidRequest("A tool message needs the tool_call_id it answers.", param=f"{where}.tool_call_id")
        return Message(Role.TOOL, (ToolResult(body.tool_call_id, _result_text(where, body.content)),))
    role = ROLES[body.role]
    calls = [ToolCall(call.id, call.function.name, call.function.arguments or "{}") for call in body.tool_calls or ()]
    content = body.refusal if body.content is None else body.content
    if content is None and not calls:
        raise InvalidRequest("The message has no content.", param=f"{where}.content")
    return Message(role, (*_parts(where, content), *calls))


def _result_text(where: str, content: str | list[ContentPart] | None) -> str:
    if content is None:
        raise InvalidRequest("The message has no content.", param=f"{where}.content")
    parts = _parts(where, content)
    if not all(isinstance(part, Text) for part in parts):
        raise Unsupported("A tool's answer can hold only text.", param=f"{where}.content")
    return "".join(part.text for part in parts if isinstance(part, Text))


def _parts(where: str, content: str | list[ContentPart] | None) -> tuple[Part, ...]:
    if content is None:
        return ()
    if isinstance(content, str):
        return (Text(content),)
    return tuple(_part(f"{where}.content[{index}]", part) for index, part in enumerate(content))


def _part(where: str, part: ContentPart) -> Part:
    match part:
        case ContentPart(type="text" | "input_text" | "output_text", text=str(text)):
            return Text(text)
        case ContentPart(type="refusal", refusal=str(text)):
            return Text(text)
        case ContentPart(type="image_url", image_url=ImageUrl() as image):
            return Image(image.url, image.detail)
        case ContentPart(type="text" | "refusal" | "image_url"):
            raise InvalidRequest(f"A {part.type!r} part needs a field of that name.", param=where)
        case _:
            raise Unsupported(
                f"Content parts of type {part.type!r} are not taken; text and image_url are.", param=where
            )
