"""The output items of a response. Each knows the events that open it, go on with it and close it, in their order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

Event = dict[str, Any]


class OutputItem(Protocol):
    """One item at work. `body` is the item as it stands; `closed` is called once."""

    index: int

    def opened(self) -> Iterator[Event]: ...

    def closed(self, status: str) -> Iterator[Event]: ...

    def body(self, status: str) -> dict[str, Any]: ...


def _added(item: OutputItem, body: dict[str, Any]) -> Event:
    return {"type": "response.output_item.added", "output_index": item.index, "item": body}


def _done(item: OutputItem, status: str) -> Event:
    return {"type": "response.output_item.done", "output_index": item.index, "item": item.body(status)}


class MessageItem:
    """The answer's text, in one part."""

    def __init__(self, id: str, index: int) -> None:
        self.id, self.index = f"msg_{id}_{index}", index
        self.place = {"item_id": self.id, "output_index": index, "content_index": 0}
        self._text: list[str] = []

    def add(self, text: str) -> None:
        """The next piece; the encoder writes its event itself, since there are so many."""
        self._text.append(text)

    def opened(self) -> Iterator[Event]:
        yield _added(self, self._shown("in_progress", []))
        yield {"type": "response.content_part.added", **self.place, "part": self._part()}

    def closed(self, status: str) -> Iterator[Event]:
        part = self._part()
        yield {"type": "response.output_text.done", **self.place, "text": part["text"], "logprobs": []}
        yield {"type": "response.content_part.done", **self.place, "part": part}
        yield _done(self, status)

    def body(self, status: str) -> dict[str, Any]:
        return self._shown(status, [self._part()])

    def _part(self) -> dict[str, Any]:
        return {"type": "output_text", "text": "".join(self._text), "annotations": [], "logprobs": []}

    def _shown(self, status: str, content: list[Any]) -> dict[str, Any]:
        return {"id": self.id, "type": "message", "role": "assistant", "status": status, "content": content}


class CallItem:
    """A function call. One without arguments ends with `{}`, so that every client reads an object."""

    def __init__(self, id: str, index: int, call_id: str, name: str) -> None:
        self.id, self.index = f"fc_{id}_{index}", index
        self._call_id, self._name = call_id, name
        self._place = {"item_id": self.id, "output_index": index}
        self._arguments: list[str] = []

    def add(self, arguments: str) -> Iterator[Event]:
        """The next piece of the arguments."""
        if arguments:
            self._arguments.append(arguments)
            yield {"type": "response.function_call_arguments.delta", **self._place, "delta": arguments}

    def opened(self) -> Iterator[Event]:
        yield _added(self, self.body("in_progress"))

    def closed(self, status: str) -> Iterator[Event]:
        if not self._arguments:
            yield from self.add("{}")
        arguments = "".join(self._arguments)
        yield {
            "type": "response.function_call_arguments.done",
            **self._place,
            "name": self._name,
            "arguments": arguments,
        }
        yield _done(self, status)

    def body(self, status: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "function_call",
            "status": status,
            "call_id": self._call_id,
            "name": self._name,
            "arguments": "".join(self._arguments),
        }


class ReasoningItem:
    """The model's thinking: as a summary for a client that asked for one, else as its text.

    A provider's proof goes out as `encrypted_content` to a client that includes it, and comes back unchanged.
    """

    def __init__(self, id: str, index: int, *, summary: bool, encrypted: bool) -> None:
        self.id, self.index = f"rs_{id}_{index}", index
        self._summary, self._encrypted = summary, encrypted
        counted = "summary_index" if summary else "content_index"
        self._place = {"item_id": self.id, "output_index": index, counted: 0}
        self._text: list[str] = []
        self._proof: str | None = None

    def add(self, text: str, proof: str | None) -> Iterator[Event]:
        """The next piece of the thinking, or its proof."""
        self._proof = proof or self._proof
        if text:
            self._text.append(text)
            yield {"type": self._named("delta"), **self._place, "delta": text}

    def opened(self) -> Iterator[Event]:
        yield _added(self, self._shown("in_progress", []))
        yield {"type": self._part_named("added"), **self._place, "part": self._part("")}

    def closed(self, status: str) -> Iterator[Event]:
        text = "".join(self._text)
        yield {"type": self._named("done"), **self._place, "text": text}
        yield {"type": self._part_named("done"), **self._place, "part": self._part(text)}
        yield _done(self, status)

    def body(self, status: str) -> dict[str, Any]:
        return self._shown(status, [self._part("".join(self._text))])

    def _named(self, end: str) -> str:
        return f"response.reasoning_{'summary_text' if self._summary else 'text'}.{end}"

    def _part_named(self, end: str) -> str:
        return f"response.{'reasoning_summary_part' if self._summary else 'content_part'}.{end}"

    def _part(self, text: str) -> dict[str, Any]:
        return {"type": "summary_text" if self._summary else "reasoning_text", "text": text}

    def _shown(self, status: str, parts: list[Any]) -> dict[str, Any]:
        body: dict[str, Any] = {"id": self.id, "type": "reasoning", "status": status}
        body["summary"] = parts if self._summary else []
        if not self._summary:
            body["content"] = parts
        if self._encrypted and self._proof is not None:
            body["encrypted_content"] = self._proof
        return body
