"""Nobody waits for a slow provider: what is measured is the other streams, by a process that does nothing else."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import aiohttp
import pytest

from tests.faults.peers import Upstream, crowd, in_front_of
from tests.running import Service
from tests.upstreams.aws_fake import MESSAGE_START, block_stop, message_stop, metadata, stream, text_delta
from tests.upstreams.byte_server import ByteServer, Step

WHOLE = bool(os.environ.get("POLYWIRE_FAULTS"))
FIRST_SECONDS, PAUSE_SECONDS, PAUSES = (3.0, 0.5, 10) if WHOLE else (1.0, 0.5, 2)
SLOW_STREAMS = 20
LATER_SECONDS = 0.2
AWS = {"AWS_ACCESS_KEY_ID": "sk-canary-id", "AWS_SECRET_ACCESS_KEY": "sk-canary-secret"}
OTHERS = {"model": "paced-20", "stream": True, "messages": [{"role": "user", "content": "hi"}]}


def slow_body() -> list[Step]:
    """The first event after a while, and a pause after each of the next."""
    steps: list[Step] = [FIRST_SECONDS, MESSAGE_START]
    for number in range(PAUSES):
        steps += [text_delta(f"{number} "), PAUSE_SECONDS]
    return [*steps, block_stop(0), message_stop(), metadata()]


async def longest_gap(service: Service, *, while_asking: bool) -> float:
    """The longest time between two tokens of other streams, in seconds, and that /readyz answered in time as well."""
    async with crowd(service, "ready", 1) as ready, crowd(service, "streams", 5, OTHERS) as others:
        if while_asking:
            await asyncio.gather(*(ask_bedrock(service) for _ in range(SLOW_STREAMS)))
        else:
            await asyncio.sleep(FIRST_SECONDS)
        told, answered = await others.leave(), await ready.leave()
    assert answered["longest"] < LATER_SECONDS * (1 if WHOLE else 5)
    return float(told["longest"])


async def ask_bedrock(service: Service) -> None:
    body = {"model": "claude", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{service.url}/v1/chat/completions", json=body) as answer,
    ):
        assert (await answer.read()).endswith(b"data: [DONE]\n\n")


@pytest.mark.timeout(120)
async def test_a_slow_bedrock_holds_up_no_other_stream(upstream: Upstream, tmp_path: Path) -> None:
    """Case T1: others' gaps are not longer than alone and 0.2 s; one read that blocks would make them half a second."""
    async with ByteServer({"*": stream(*slow_body())}) as bedrock:
        row = {"name": "bedrock", "type": "bedrock", "region": "us-east-1", "endpoint_url": bedrock.url}
        model = {"id": "claude", "provider": "bedrock", "upstream": "anthropic.claude"}
        starting = in_front_of(upstream, tmp_path, row=row, model=model, environment=AWS)
        service = await asyncio.to_thread(starting.__enter__)
        try:
            await ask_bedrock(service)
            alone = await longest_gap(service, while_asking=False)
            beside = await longest_gap(service, while_asking=True)
        finally:
            await asyncio.to_thread(starting.__exit__, None, None, None)
    if WHOLE:
        print(f"longest gap of others: {alone * 1000:.0f} ms alone, {beside * 1000:.0f} ms beside Bedrock")  # noqa: T201
    assert len(bedrock.requests) == SLOW_STREAMS + 1
    assert beside < alone + LATER_SECONDS
