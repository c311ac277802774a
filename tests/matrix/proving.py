"""The six proofs of one cell. Each letter stands for what was asserted of what the client saw."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from tests.matrix.client import Client, Counted, Question, Told
from tests.matrix.column import CANCEL, CUT, FIRST, MIDWAY, TEXT, Column
from tests.matrix.desk import Desk

LETTERS = "tufmcx"
MEANING = {
    "t": "the exact text, or audio",
    "u": "the usage",
    "f": "a failure before the first token, with its status",
    "m": "a failure midway: the text so far, then an error and no success",
    "c": "the client leaves, and the upstream's connection is closed",
    "x": "the upstream breaks off: never a success",
}


@dataclass
class Seen:
    """What a client saw of one answer."""

    said: list[Any] = field(default_factory=list)
    counted: Counted | None = None
    told: Told | None = None

    @property
    def whole(self) -> Any:
        return type(self.said[0])().join(self.said) if self.said else ""


async def see(desk: Desk, client: Client, column: Column, behaviour: str) -> Seen:
    """Ask, and read to the end."""
    seen = Seen()
    try:
        async with asyncio.timeout(30), aclosing(client.ask(desk, question(column, behaviour))) as stream:
            async for piece in stream:
                if isinstance(piece, Counted):
                    assert seen.counted is None
                    seen.counted = piece
                elif piece:
                    seen.said.append(piece)
    except Told as told:
        seen.told = told
    return seen


async def see_break(desk: Desk, client: Client, column: Column, behaviour: str) -> Seen:
    """The same, while the upstream is made to break off once it has said something."""

    async def strike() -> None:
        if behaviour == CUT and column.breaks is not None:
            await column.upstreams[CUT].begun()
            await column.breaks()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(strike())
        return await see(desk, client, column, behaviour)


def question(column: Column, behaviour: str) -> Question:
    upstream = column.upstreams[behaviour]
    return Question(upstream.model, upstream.owner, upstream.prompt, upstream.begun)


def unsayable(client: Client, column: Column) -> Mapping[str, str]:
    """The letters that this cell cannot have, and why."""
    whole = column.cannot_whole if client.passed_on else {}
    return {**client.cannot, **column.cannot, **whole}


class Proofs:
    """The proofs, and the sentences by which failures were told: every client learns the same one.

    `again` counts the models that were asked for their text once more.
    """

    def __init__(self) -> None:
        self.again: Counter[str] = Counter()
        self._sentences: dict[tuple[str, str, str], str] = {}

    async def cell(self, desk: Desk, client: Client, column: Column) -> str:
        """The letters that were proved. Raises AssertionError where one was not."""
        proofs = {"t": self._text, "f": self._first, "m": self._midway, "c": self._cancel, "x": self._cut}
        cannot = unsayable(client, column)
        for letter, proof in proofs.items():
            if letter in cannot:
                continue
            try:
                await proof(desk, client, column)
            except Exception as error:
                error.add_note(f"cell {client.name} x {column.name}, {letter}: {MEANING[letter]}")
                raise
        return "".join(letter for letter in LETTERS if letter not in cannot)

    async def _text(self, desk: Desk, client: Client, column: Column) -> None:
        """The usage as well, where there is one to be told."""
        seen = await see(desk, client, column, TEXT)
        for _ in range(column.tries - 1):
            if seen.told is None and seen.whole != column.whole:
                self.again[column.upstreams[TEXT].model] += 1
                seen = await see(desk, client, column, TEXT)
        assert seen.told is None
        if column.check is None:
            assert seen.whole == column.whole
        else:
            await column.check(seen.whole)
        usage = column.usage
        if usage is not None and "u" not in client.cannot:
            assert seen.counted == Counted(usage.input_tokens, usage.output_tokens)

    async def _first(self, desk: Desk, client: Client, column: Column) -> None:
        seen = await see(desk, client, column, FIRST)
        assert seen.said == []
        self._same(client, column, FIRST, seen.told, client.refused[column.status])

    async def _midway(self, desk: Desk, client: Client, column: Column) -> None:
        await self._broken(desk, client, column, MIDWAY)

    async def _cut(self, desk: Desk, client: Client, column: Column) -> None:
        await self._broken(desk, client, column, CUT)

    async def _broken(self, desk: Desk, client: Client, column: Column, behaviour: str) -> None:
        seen = await see_break(desk, client, column, behaviour)
        assert seen.counted is None
        if client.whole:
            assert seen.said == []
        elif column.half is None:
            assert seen.said
            assert column.kind == "chat" or column.whole is None or column.whole.startswith(seen.whole)
        else:
            assert seen.whole == column.half
        self._same(client, column, behaviour, seen.told, client.told(behaviour))

    def _same(self, client: Client, column: Column, behaviour: str, told: Told | None, status: object) -> None:
        assert told is not None
        assert told.status == status
        if told.sentence or not client.wordless:
            sentence = self._sentences.setdefault((column.kind, column.name, behaviour), told.sentence)
            assert sentence
            assert told.sentence == sentence

    async def _cancel(self, desk: Desk, client: Client, column: Column) -> None:
        await client.leave(desk, client.ask, question(column, CANCEL))
        await column.upstreams[CANCEL].left()
