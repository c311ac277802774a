"""What a row of the matrix is: one wire with the client that its users have, see `Client`. The list is `clients.py`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.matrix.column import CUT
from tests.matrix.desk import Desk


@dataclass(frozen=True, slots=True)
class Question:
    """What a client puts to a model, whose `owner` is None where it has none. `begun` waits until it said something."""

    model: str
    owner: str | None
    prompt: str
    begun: Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Counted:
    """The usage that the client is told."""

    input_tokens: int
    output_tokens: int


class Told(Exception):
    """The client learnt of a failure: `status` is the number or word by which it tells failures apart."""

    def __init__(self, status: object, sentence: str = "") -> None:
        super().__init__(f"{status}: {sentence}")
        self.status, self.sentence = status, sentence


Said = str | bytes | Counted
Ask = Callable[[Desk, Question], AsyncGenerator[Said, None]]


async def hangs_up(desk: Desk, ask: Ask, question: Question) -> None:
    """The client closes its stream after the first piece."""
    stream = ask(desk, question)
    try:
        async for piece in stream:
            if not isinstance(piece, Counted):
                return
    finally:
        await stream.aclose()


@dataclass(frozen=True, slots=True)
class Client:
    """One row. `wire` is the wire's name in the log.

    `ask` yields what the client is given and raises `Told` for what it tells as a failure; that an answer ended as this
    protocol ends one is asserted in it. `leave` is how the client gives up. `refused` is what it makes of a refusal
    with a status, `broke` of a failure midway and `truncated` of a truncation, where that is something else. `whole` is
    for a client that gets the answer in one piece; `wordless` for one that learns no sentence. `cannot` names the
    letters that the protocol has no words for, and why.
    """

    name: str
    wire: str
    ask: Ask
    refused: Mapping[int, object]
    broke: object
    truncated: object = None
    kind: str = "chat"
    leave: Callable[[Desk, Ask, Question], Awaitable[Any]] = hangs_up
    whole: bool = False
    passed_on: bool = False
    wordless: bool = False
    cannot: Mapping[str, str] = field(default_factory=dict)

    def told(self, behaviour: str) -> object:
        """How it tells an answer that breaks off."""
        return self.truncated if behaviour == CUT and self.truncated is not None else self.broke
