"""Limits that several workers or replicas share are as exact as one worker's, by the real stores."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import cycle
from typing import Any

import aiohttp
import pytest

from tests.conftest import scripted_config
from tests.redis_server import redis_server
from tests.running import Service, running
from tests.trust.test_conventions import CALLS

AT_ONCE, REQUESTS, TOKENS, EACH = 200, 50, 1000, 100
KEYS = [f"sk-canary-shared-{number}" for number in range(4)]
STORES = ("sqlite", "redis")
SHAPES = {
    "generate": lambda body: body["error"],
    "openai": lambda body: (body["error"]["code"] == "rate_limit_exceeded") and body["error"]["message"],
    "replicate": lambda body: (body["status"] == 429) and body["detail"],
    "opensearch": lambda body: (body["status"] == 429) and body["error"]["reason"],
    "sagemaker": lambda body: body["error_type"] and body["error"],
    "runtime": lambda body: body["Message"],
    "lambda": lambda body: body["message"],
}
"""The sentence of each wire's refusal."""


@pytest.fixture(scope="module", params=STORES)
def services(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Service]]:
    """Four workers on one SQLite file, or two services on one Redis."""
    folder = tmp_path_factory.mktemp(request.param)
    config = scripted_config(limits={"requests_per_minute": REQUESTS, "tokens_per_minute": TOKENS})
    environment = {"POLYWIRE_API_KEYS": ",".join(KEYS)}
    with ExitStack() as stack:
        if request.param == "sqlite":
            yield [stack.enter_context(running(folder, config, environment=environment, workers=4))]
            return
        redis = stack.enter_context(redis_server(folder / "redis"))
        environment |= {"POLYWIRE_STORE": redis.url, "POLYWIRE_STORE_KEY": "sk-canary-store-shared"}
        started = []
        for name in ("one", "two"):
            (folder / name).mkdir()
            started.append(stack.enter_context(running(folder / name, config, environment=environment)))
        yield started


async def at_once(services: Sequence[Service], key: str, asked: Sequence[tuple[str, str, Any]]) -> list[Any]:
    """(name, status, Retry-After, body) of each answer; every request has a connection, so that any worker has it."""
    urls = cycle(service.url for service in services)
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector, headers={"authorization": f"Bearer {key}"}) as http:

        async def ask(url: str, name: str, path: str, body: Any) -> Any:
            async with http.post(f"{url}{path}", json=body) as answer:
                if answer.status == 200 and body.get("stream"):
                    return name, 200, None, await answer.content.readany()
                return name, answer.status, answer.headers.get("retry-after"), await answer.read()

        return list(await asyncio.gather(*(ask(next(urls), *each) for each in asked)))


async def test_two_hundred_requests_at_once_get_exactly_what_the_key_may_use(services: list[Service]) -> None:
    wires = cycle(CALLS)
    asked = [(wire, *CALLS[wire]) for wire, _ in zip(wires, range(AT_ONCE), strict=False)]
    began = time.monotonic()
    answers = await at_once(services, KEYS[0], asked)
    refilled = (time.monotonic() - began) * REQUESTS / 60
    passed = sum(status in (200, 201) for _, status, _, _ in answers)
    assert REQUESTS <= passed <= REQUESTS + refilled
    refused = [answer for answer in answers if answer[1] not in (200, 201)]
    assert Counter(status for _, status, _, _ in refused) == {429: AT_ONCE - passed}
    assert {name for name, *_ in refused} == set(CALLS)
    for name, _, retry_after, body in refused:
        assert 1 <= int(retry_after) <= 60 / REQUESTS + 1
        assert "50 requests per minute" in SHAPES[name](json.loads(body))


async def test_tokens_are_reserved_once_whoever_answers(services: list[Service]) -> None:
    """What one worker has reserved for a stream that goes on, no other gives away."""
    body = {
        "model": "hangs-midway",
        "stream": True,
        "max_tokens": EACH - 1,
        "messages": [{"role": "user", "content": "hi"}],
    }
    began = time.monotonic()
    answers = await at_once(services, KEYS[1], [("openai", "/v1/chat/completions", body)] * REQUESTS)
    refilled = (time.monotonic() - began) * TOKENS / 60 / EACH
    passed = sum(status == 200 for _, status, _, _ in answers)
    assert TOKENS // EACH <= passed <= TOKENS // EACH + refilled
    for name, status, retry_after, refusal in answers:
        if status != 200:
            assert (status, name) == (429, "openai")
            assert int(retry_after) >= 1
            assert "1000 tokens per minute" in SHAPES[name](json.loads(refusal))
