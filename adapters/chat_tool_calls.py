"""Tells the tool calls of a chat-completions stream apart, whose pieces servers number in different ways.

Seen: an index and an id as OpenAI writes them; no index; index 0 for every call with an id each; a new random id in
every piece; one object in place of the list; arguments as an object instead of JSON text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import msgspec

from gateway.events import ToolCallDelta, ToolCallStart


class FunctionPiece(msgspec.Struct):
    """The `function` of a piece; the name comes with the first piece of a call."""

    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class CallPiece(msgspec.Struct):
    """One entry of `tool_calls`."""

    index: int | None = None
    id: str | None = None
    function: FunctionPiece | None = None


@dataclass(slots=True)
class _Call:
    index: int | None
    id: str | None
    name: str = ""
    position: int | None = None


class ToolCalls:
    """The calls of one answer so far. True when there are any."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._started = 0

    def __bool__(self) -> bool:
        return self._started > 0

    def feed(self, pieces: Iterable[CallPiece], *, whole: bool) -> Iterator[ToolCallStart | ToolCallDelta]:
        """The events of one delta's pieces. `whole`: they are from an unstreamed answer, each a call of its own."""
        for piece in pieces:
            function = piece.function or FunctionPiece()
            call = (None if whole else self._find(piece, function.name)) or self._begin(piece)
            call.name = call.name or function.name or ""
            if call.position is None:
                if not call.name and not function.arguments:
                    continue
                call.position = self._started
                self._started += 1
                yield ToolCallStart(call.position, call.id or f"call_{uuid4().hex}", call.name)
            if function.arguments:
                yield ToolCallDelta(call.position, _json_text(function.arguments))

    def _begin(self, piece: CallPiece) -> _Call:
        call = _Call(piece.index, piece.id or None)
        self._calls.append(call)
        if piece.index is not None:
            self._by_index[piece.index] = call
        if piece.id:
            self._by_id[piece.id] = call
        return call

    def _find(self, piece: CallPiece, name: str | None) -> _Call | None:
        """The call that `piece` goes on with, None for a new one. A name that differs begins a call, as does a name
        with another id; an id alone does not, since there are servers that make up one for every piece."""
        known = self._known(piece, name)
        if known is None or not name or not known.name:
            return known
        another_id = bool(piece.id and known.id and piece.id != known.id)
        return None if another_id or name != known.name else known

    def _known(self, piece: CallPiece, name: str | None) -> _Call | None:
        by_id = self._by_id.get(piece.id) if piece.id else None
        if by_id is not None and (not name or by_id.index == piece.index):
            return by_id
        if piece.index is not None:
            return self._by_index.get(piece.index)
        return self._calls[-1] if self._calls and not name else None


def _json_text(arguments: str | dict[str, Any]) -> str:
    return arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
