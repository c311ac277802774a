"""CPU of a token in each adapter, beside the plain loop over the vendor's own package, at the same number of streams.

The fake upstream and the reader are child processes, so only the reader's CPU counts. Both readers of a provider run
one after the other in every round; the lower of the rounds counts, which is the one that the machine disturbed least.
The last two columns are of tokens without their request, and that beside the first row: an OpenAI-compatible provider.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.adapter_readers import KEY, PLAIN
from benchmarks.table import Ratio

STREAMS = 200
TOKENS, FEW = 40, 10
"""Of a stream; the difference between the two is what tokens cost without their request."""
PAUSE = 0.06
"""Seconds between two tokens of a stream."""
ROUNDS = 2
SECRETS = {
    "CONTRACT_CANARY_KEY": KEY,
    "CONTRACT_USER": "bench",
    "AWS_ACCESS_KEY_ID": KEY,
    "AWS_SECRET_ACCESS_KEY": KEY,
    "AWS_EC2_METADATA_DISABLED": "true",
}


def measure() -> list[Ratio]:
    """One row for each adapter."""
    return [_row(name) for name in PLAIN]


def _row(name: str) -> Ratio:
    with _upstream(name, TOKENS) as url, _upstream(name, FEW) as other:
        asked = (("adapter", url, TOKENS), ("plain", url, TOKENS), ("adapter", other, FEW))
        rounds = [[_read(reader, name, at, tokens) for reader, at, tokens in asked] for _ in range(ROUNDS)]
    ours, theirs, few = (
        min((done[place] for done in rounds), key=lambda one: one["microseconds"]) for place in range(len(asked))
    )
    alone = (ours["microseconds"] * TOKENS - few["microseconds"] * FEW) / (TOKENS - FEW)
    return Ratio(
        name, ours["microseconds"], alone, PLAIN[name][0], theirs["microseconds"], ours["threads"], theirs["threads"]
    )


@contextmanager
def _upstream(name: str, tokens: int) -> Iterator[str]:
    command = [sys.executable, "-m", "benchmarks.adapter_upstream", name, str(tokens), str(PAUSE)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()


def _read(reader: str, name: str, url: str, tokens: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.adapter_readers", reader, name, url, str(STREAMS), str(tokens)]
    done = subprocess.run(command, env=os.environ | SECRETS, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures
