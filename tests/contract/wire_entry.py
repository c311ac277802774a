"""How a wire takes part in the contract suite: see `WireEntry`. The list is `wires.py`."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.events import FinishReason, StreamEvent
from tests.contract.wire_clients import Clients, Raw

ERROR = "error"


@dataclass(slots=True)
class Answer:
    """What a client of the wire learns. `ends` holds every frame that ends the answer, `ERROR` among them."""

    text: str = ""
    reasoning: str = ""
    calls: list[list[str]] = field(default_factory=list)
    usage: tuple[int, int] | None = None
    ends: list[str] = field(default_factory=list)
    error: str | None = None

    def fail(self, sentence: str) -> None:
        """The answer broke off."""
        self.ends.append(ERROR)
        self.error = sentence

    def call(self, index: int, name: str, arguments: str) -> None:
        """A piece of tool call `index`; a name begins it."""
        if name:
            assert index == len(self.calls)
            self.calls.append([name, ""])
        self.calls[index][1] += arguments


@dataclass(frozen=True, slots=True)
class WireEntry:
    """How one wire takes part.

    `ask` puts a prompt to a model through the running service; `encode` is what the wire makes of events, as the bytes
    that `ask` would bring (None where more than an encoder makes them); `read` reads either as a strict client of this
    protocol does. `cannot` names what the protocol has no words for, and why: `reasoning`, `tools`, `usage`, `reason`
    (why an answer ended), `carriage return` (a line end in the text arrives as a line feed). `reasons` are its words.
    """

    name: str
    ask: Callable[[Clients, str, str], Awaitable[Raw]]
    encode: Callable[[Iterable[StreamEvent]], Raw] | None
    read: Callable[[Raw], Answer]
    cannot: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[FinishReason, str] = field(default_factory=dict)

    def reason(self, reason: FinishReason) -> str:
        """How this wire says `reason`."""
        return "end" if "reason" in self.cannot else self.reasons.get(reason, str(reason))

    def carried(self, text: str) -> str:
        """`text` as this wire can carry it."""
        return text.replace("\r\n", "\n").replace("\r", "\n") if "carriage return" in self.cannot else text


def json_of(raw: Raw) -> Any:
    """The body of a refusal."""
    return json.loads(raw.body)
