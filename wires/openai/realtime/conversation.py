"""The default conversation: items in order, and how a list of items is put to a chat model."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from gateway.errors import InvalidRequest, NotFound
from gateway.request import ChatRequest, Image, Message, Part, Role, Text, ToolCall, ToolResult, text_message
from wires.openai.realtime.items import Item

MOST_ITEMS = 2_000
MOST_BYTES = 64 * 1024 * 1024
"""What the items of a session may hold together, audio that is not written down yet included."""
SILENCE = "(The user is silent.)"
"""What a model reads where a turn holds no words; a provider may refuse an empty message."""


class Conversation:
    """Items by id, in the order in which a model reads them."""

    def __init__(self) -> None:
        self.items: list[Item] = []

    @property
    def last_id(self) -> str | None:
        return self.items[-1].id if self.items else None

    def find(self, item_id: str) -> Item:
        """Raises NotFound."""
        for item in self.items:
            if item.id == item_id:
                return item
        raise NotFound(f"There is no item {item_id[:128]!r} here.", code="item_not_found", param="item_id")

    def previous_id(self, item: Item) -> str | None:
        """The id of the item before `item`."""
        place = self.items.index(item)
        return self.items[place - 1].id if place else None

    def add(self, item: Item, after: str | None = None) -> None:
        """Put `item` at the end, or behind the item `after` (`root`: first). Raises InvalidRequest or NotFound."""
        if any(other.id == item.id for other in self.items):
            raise InvalidRequest(f"There is an item {item.id!r} already.", code="invalid_value", param="item.id")
        if len(self.items) >= MOST_ITEMS or sum(other.size for other in self.items) + item.size > MOST_BYTES:
            raise InvalidRequest(
                f"A conversation holds at most {MOST_ITEMS} items and {MOST_BYTES >> 20} MiB; delete some items first.",
                code="conversation_full",
            )
        called = item.kind == "function_call_output"
        if called and not any(other.kind == "function_call" and other.call_id == item.call_id for other in self.items):
            raise InvalidRequest(
                f"There is no function call {item.call_id[:128]!r} here.",
                code="invalid_tool_call_id",
                param="item.call_id",
            )
        place = len(self.items)
        if after is not None:
            place = 0 if after == "root" else self.items.index(self.find(after)) + 1
        self.items.insert(place, item)

    def remove(self, item_id: str) -> None:
        """Raises NotFound."""
        self.items.remove(self.find(item_id))


def messages_of(instructions: str, items: Sequence[Item]) -> tuple[Message, ...]:
    """What a chat model reads. Calls that have no output yet are left out: providers refuse a call without one."""
    outputs = {item.call_id: item for item in items if item.kind == "function_call_output"}
    messages = [text_message(Role.SYSTEM, instructions)] if instructions else []
    calls: list[Item] = []

    def settle() -> None:
        if calls:
            parts = tuple(ToolCall(call.call_id, call.name, call.arguments or "{}") for call in calls)
            _append(messages, Message(Role.ASSISTANT, parts))
            messages.extend(
                Message(Role.TOOL, (ToolResult(call.call_id, outputs[call.call_id].output),)) for call in calls
            )
            calls.clear()

    for item in items:
        if item.kind == "function_call" and item.call_id in outputs:
            calls.append(item)
        elif item.kind == "message":
            settle()
            if parts := _parts(item):
                _append(messages, Message(Role(item.role), parts))
    settle()
    return tuple(messages)


def without_oldest_turn(request: ChatRequest) -> ChatRequest | None:
    """For a model whose context is full; None when only the last turn is left."""
    system = [message for message in request.messages if message.role is Role.SYSTEM]
    said = [message for message in request.messages if message.role is not Role.SYSTEM]
    following = next((place for place, message in enumerate(said) if place and message.role is Role.USER), None)
    return None if following is None else replace(request, messages=(*system, *said[following:]))


def _append(messages: list[Message], message: Message) -> None:
    """A message and the calls after it are one message to a model."""
    before = messages[-1] if messages else None
    if before is not None and before.role is Role.ASSISTANT and message.role is Role.ASSISTANT:
        messages[-1] = Message(Role.ASSISTANT, (*before.parts, *message.parts))
    else:
        messages.append(message)


def _parts(item: Item) -> tuple[Part, ...]:
    parts: list[Part] = []
    for part in item.parts:
        if part.kind == "input_image":
            parts.append(Image(part.image_url or "", part.detail))
        elif part.kind == "input_audio":
            parts.append(Text(part.remembered or SILENCE))
        elif part.remembered:
            parts.append(Text(part.remembered))
    return tuple(parts)
