"""Input items -> messages. An assistant's reasoning, text and function calls that follow each other are one message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gateway.errors import InvalidRequest, Unsupported
from gateway.request import Image, Message, Part, Reasoning, Role, Text, ToolCall, ToolResult

ROLES = {"user": Role.USER, "system": Role.SYSTEM, "developer": Role.SYSTEM, "assistant": Role.ASSISTANT}
TAKEN = "message, function_call, function_call_output and reasoning"

Item = Mapping[str, Any]


def text_item(text: str) -> dict[str, Any]:
    """What a plain string as `input` stands for."""
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def parse_items(items: Sequence[Item]) -> tuple[Message, ...]:
    """The conversation. Raises InvalidRequest or Unsupported with the place of the item at fault."""
    messages: list[Message] = []
    for index, item in enumerate(items):
        role, parts = _parse(f"input[{index}]", item)
        if messages and _belongs_to(messages[-1], role, parts):
            messages[-1] = Message(role, (*messages[-1].parts, *parts))
        else:
            messages.append(Message(role, parts))
    return tuple(messages)


def _belongs_to(last: Message, role: Role, parts: Sequence[Part]) -> bool:
    """Whether `parts` go on with the assistant's message `last`: a call does, a second text does not."""
    if role is not Role.ASSISTANT or last.role is not Role.ASSISTANT:
        return False
    if any(isinstance(part, ToolCall) for part in parts):
        return True
    return all(isinstance(part, Reasoning) for part in last.parts)


def _parse(where: str, item: Item) -> tuple[Role, tuple[Part, ...]]:
    match item:
        case {"type": "function_call", "call_id": str(call_id), "name": str(name), "arguments": str(arguments)}:
            return Role.ASSISTANT, (ToolCall(call_id, name, arguments or "{}"),)
        case {"type": "function_call_output", "call_id": str(call_id), "output": str() | list() as output}:
            return Role.TOOL, (ToolResult(call_id, _result(where, output)),)
        case {"type": "reasoning"}:
            return Role.ASSISTANT, (_reasoning(where, item),)
        case {"role": str(role), "content": str() | list() as content} if item.get("type", "message") == "message":
            if role not in ROLES:
                raise InvalidRequest(f"The role is one of {', '.join(ROLES)}.", param=f"{where}.role")
            return ROLES[role], _content(where, content)
        case {"type": "function_call"}:
            raise InvalidRequest("A function_call item needs call_id, name and arguments.", param=where)
        case {"type": "function_call_output"}:
            raise InvalidRequest("A function_call_output item needs call_id and output.", param=where)
        case {"type": str(kind)} if kind != "message":
            raise Unsupported(f"Input items of type {kind!r} are not taken; {TAKEN} are.", param=where)
        case _:
            raise InvalidRequest("A message needs a role and content.", param=where)


def _content(where: str, content: str | list[Any]) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (Text(content),)
    return tuple(_part(f"{where}.content[{index}]", part) for index, part in enumerate(content))


def _part(where: str, part: Any) -> Part:
    match part:
        case {"type": "input_text" | "output_text" | "text", "text": str(text)}:
            return Text(text)
        case {"type": "refusal", "refusal": str(text)}:
            return Text(text)
        case {"type": "input_image", "image_url": str(url)}:
            detail = part.get("detail")
            return Image(url, detail if isinstance(detail, str) else None)
        case {"type": "input_image"}:
            raise Unsupported("An input_image needs an image_url; file ids are not supported.", param=where)
        case {"type": str(kind)}:
            raise Unsupported(
                f"Content parts of type {kind!r} are not taken; input_text, output_text and input_image are.",
                param=where,
            )
        case _:
            raise InvalidRequest("A content part is an object with a type.", param=where)


def _result(where: str, output: str | list[Any]) -> str:
    if isinstance(output, str):
        return output
    parts = _content(f"{where}.output", output)
    if not all(isinstance(part, Text) for part in parts):
        raise Unsupported("A function's output can hold only text.", param=f"{where}.output")
    return "".join(part.text for part in parts if isinstance(part, Text))


def _reasoning(where: str, item: Item) -> Reasoning:
    """`encrypted_content` is the provider's own proof, as the encoder gave it out."""
    proof = item.get("encrypted_content")
    texts = [*_texts(item.get("content")), *_texts(item.get("summary"))]
    if proof is not None and not isinstance(proof, str):
        raise InvalidRequest("encrypted_content is a string.", param=where)
    return Reasoning("".join(texts), proof)


def _texts(parts: object) -> Iterator[str]:
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            yield part["text"]
