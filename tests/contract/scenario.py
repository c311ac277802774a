"""What a provider's upstream is told to do in a contract test, in words that every vendor can act out."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass, field

from gateway.events import FinishReason, Usage
from tests.upstreams.byte_server import Act, Answer, Framing, Step

USAGE = Usage(input_tokens=9, output_tokens=3)
PIECES = ("Hel", "lo ", "안녕", "하세요", " 👋🏽")


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of the answer."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error status before anything else; `message` goes into the vendor's own error body."""

    status: int
    message: str = "The upstream says no."
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scenario:
    """An answer, and what goes wrong with it.

    `refusals` come first, one per request. `pause` seconds lie before every piece. After `pieces_before` pieces of
    text the stream does `then`: an act of the byte server, or `b""` for the vendor's own error inside the stream.
    `cut`, `truncated_at`, `framing` and `gzip` are done to the body's bytes; `instead` replaces the streaming answer.
    """

    pieces: tuple[str, ...] = PIECES
    reasoning: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    reason: FinishReason = FinishReason.STOP
    usage: Usage = USAGE
    refusals: tuple[Refusal, ...] = ()
    pause: float = 0
    pieces_before: int = 0
    then: Act | bytes | None = None
    cut: int | None = None
    truncated_at: int | None = None
    framing: Framing = Framing.CHUNKED
    gzip: bool = False
    instead: Answer | None = None

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(self.pieces)

    def answer(
        self,
        opening: Sequence[bytes],
        pieces: Sequence[bytes],
        ending: Sequence[bytes],
        failure: bytes,
        **headers: str,
    ) -> Answer:
        """The streaming answer: the vendor gives its bytes (one of `pieces` for each piece of text, `failure` for
        an error inside the stream) and this does to them what the scenario says."""
        steps: list[Step] = list(opening)
        if self.then is not None and self.pieces_before == 0:
            steps = []
        for piece in pieces if self.then is None else pieces[: self.pieces_before]:
            steps += [self.pause, piece] if self.pause else [piece]
        steps += ending if self.then is None else [self.then or failure]
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.gzip:
            whole = b"".join(step for step in steps if isinstance(step, bytes))
            steps, given = [gzip.compress(whole)], {**given, "content-encoding": "gzip"}
        if self.instead is not None:
            return self.instead
        return Answer(steps, headers=given, framing=self.framing, cut=self.cut, truncated_at=self.truncated_at)
