"""The column of the embedded chat model. It runs really: its process says what its slots do, and is killed for `x`."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import httpx

from gateway.events import Usage
from tests.matrix.column import BEHAVIOURS, CANCEL, CUT, FIRST, TEXT, Column, Upstream, until
from tests.matrix.columns import model_rows

CONTEXT = 512
ENVIRONMENT = {"POLYWIRE__LOCAL__CONTEXT": str(CONTEXT), "POLYWIRE__LOCAL__THREADS": "1"}
STORY = "Write a long story about a ship that sails around the world."
ANSWER = "The capital of France is Paris."
SURE = f"What is the capital of France? Answer: {ANSWER} Repeat the answer. {ANSWER} Repeat the answer."
"""The small model answers this in one way 247 times in 250."""
PROMPTS = {TEXT: SURE, FIRST: "word " * CONTEXT * 4, CANCEL: STORY, CUT: STORY}
DIES = {"m": "the engine has no error of its own midway: what can go wrong is its death, which is `x`"}


def embedded(folder: Path) -> Column:
    """`folder` is the service's temporary one, where it meets the model's process."""
    child = _Child(folder)
    column = Column(
        "embedded",
        {name: Upstream(f"embedded-{name}", child.begun, child.left, prompt) for name, prompt in PROMPTS.items()},
        [{"name": "local", "type": "local"}],
        whole=ANSWER,
        tries=4,
        half=None,
        usage=Usage(54, 8),
        status=400,
        alone=True,
        breaks=child.die,
        cannot=DIES,
    )
    for behaviour in BEHAVIOURS:
        column.models += model_rows(f"embedded-{behaviour}", "local", "chat")
    return column


class _Child:
    """The model's process, as it shows itself."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def begun(self) -> None:
        # A slot that reads a prompt still tells the count of the answer before.
        counts: set[tuple[int, int]] = set()

        def writes() -> bool:
            counts.update((slot["id_task"], slot["next_token"][0]["n_decoded"]) for slot in self._working())
            tasks = [task for task, count in counts if count]
            return len(tasks) > len(set(tasks))

        await until(writes)

    async def left(self) -> None:
        await until(lambda: not self._working())

    async def die(self) -> None:
        os.kill(self._address()["pid"], signal.SIGKILL)

    def _working(self) -> list[Any]:
        address = self._address()
        url = address["base_url"].removesuffix("/v1") + "/slots"
        slots = httpx.get(url, headers={"authorization": f"Bearer {address['key']}"}).json()
        return [slot for slot in slots if slot["is_processing"]]

    def _address(self) -> Any:
        [path] = self._folder.glob("polywire-*/*/child.json")
        return json.loads(path.read_text())
