"""The fake upstream of one provider, in a process of its own.

    python -m benchmarks.adapter_upstream NAME TOKENS PAUSE

It prints its URL and serves until its standard input ends. Every token is a write of its own, PAUSE seconds apart.
"""

from __future__ import annotations

import asyncio
import sys

import uvloop

from tests.contract.providers import ENTRIES
from tests.contract.scenario import Scenario
from tests.upstreams.byte_server import ByteServer


async def main(name: str, tokens: int, pause: float) -> None:
    """Serve that provider's bytes."""
    entry = next(entry for entry in ENTRIES if entry.name == name)
    assert entry.routes is not None, f"{name} has no upstream over HTTP"
    async with ByteServer({}) as server:
        server.routes.update(entry.routes(Scenario(pieces=("word ",) * tokens, pause=pause), server.url))
        print(server.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
