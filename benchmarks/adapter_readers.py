"""Reads one provider's fake in a process of its own.

    python -m benchmarks.adapter_readers READER NAME URL STREAMS TOKENS

READER is `adapter` or `plain`, the loop that the vendor's package shows in its documentation. It prints the CPU
microseconds of this process for each token, of all streams together, after one stream as a rehearsal.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, cast

import boto3
import httpx
import uvloop
from botocore.config import Config
from openai import AsyncOpenAI
from replicate.client import Client

from adapters import build
from gateway.config import Settings
from gateway.events import StreamEvent, TextDelta
from gateway.patience import Patience
from gateway.ports import ChatProvider
from gateway.request import ChatRequest, Role, text_message
from gateway.streams import open_stream
from gateway.telemetry import Meter
from tests.contract.providers import ENTRIES

KEY = "sk-canary-bench"
QUESTION = "Say hello."
MESSAGES: Any = [{"role": "user", "content": QUESTION}]
Read = Callable[[], Awaitable[int]]
"""Reads one stream to its end and gives the number of its tokens."""


@asynccontextmanager
async def adapter(name: str, url: str) -> AsyncIterator[Read]:
    """Our own."""
    entry = next(entry for entry in ENTRIES if entry.name == name)
    assert entry.row is not None
    provider = cast(ChatProvider, build(entry.row(url), "chat", Settings()))
    request = ChatRequest(entry.model, (text_message(Role.USER, QUESTION),))

    async def read() -> int:
        count, meter = TokenCount(), Meter("bench", name, name)
        async with open_stream(
            lambda: provider.stream(request), model=entry.model, meter=meter, patience=Patience()
        ) as events:
            events.hand_to(count)
            async for event in events:
                count.take((event,))
        return count.tokens

    yield read
    await provider.aclose()


class TokenCount:
    """Takes a stream's events as a wire does whose client reads."""

    tokens = 0

    def ready(self) -> bool:
        """Always."""
        return True

    def take(self, items: Sequence[StreamEvent]) -> None:
        """Count the tokens among them."""
        for item in items:
            self.tokens += isinstance(item, TextDelta)


async def openai_package(url: str, _streams: int) -> Read:
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY)

    async def read() -> int:
        chunks = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        return sum([bool(chunk.choices and chunk.choices[0].delta.content) async for chunk in chunks])

    return read


def boto3_client(service: Any, url: str, streams: int) -> Any:
    config = Config(max_pool_connections=streams, read_timeout=60)
    return boto3.client(service, region_name="us-east-1", endpoint_url=url, config=config)


async def boto3_converse(url: str, streams: int) -> Read:
    client = boto3_client("bedrock-runtime", url, streams)

    def texts() -> Iterator[str]:
        answer = client.converse_stream(modelId="m", messages=[{"role": "user", "content": [{"text": QUESTION}]}])
        for event in answer["stream"]:
            if text := event.get("contentBlockDelta", {}).get("delta", {}).get("text"):
                yield text

    return in_threads(texts, streams)


async def boto3_invoke(url: str, streams: int) -> Read:
    client = boto3_client("sagemaker-runtime", url, streams)
    body = json.dumps({"messages": MESSAGES, "stream": True})

    def texts() -> Iterator[str]:
        answer = client.invoke_endpoint_with_response_stream(
            EndpointName="m", Body=body, ContentType="application/json"
        )
        rest = b""
        for event in answer["Body"]:
            *lines, rest = (rest + event["PayloadPart"]["Bytes"]).split(b"\n")
            for line in lines:
                if line.startswith(b"data:") and b"[DONE]" not in line:
                    choices = json.loads(line[5:])["choices"]
                    if choices and (text := choices[0]["delta"].get("content")):
                        yield text

    return in_threads(texts, streams)


def in_threads(texts: Callable[[], Iterator[str]], streams: int) -> Read:
    """A thread for each stream, since boto3 blocks; its tokens go to the event loop, where a service sends them on."""
    pool = ThreadPoolExecutor(streams)

    async def read() -> int:
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[str | None]()

        def hand_over() -> None:
            for text in texts():
                loop.call_soon_threadsafe(queue.put_nowait, text)
            loop.call_soon_threadsafe(queue.put_nowait, None)

        done = loop.run_in_executor(pool, hand_over)
        count = 0
        while await queue.get() is not None:
            count += 1
        await done
        return count

    return read


async def replicate_package(url: str, _streams: int) -> Read:
    client = Client(api_token=KEY, base_url=url)

    async def read() -> int:
        events = await client.async_stream("owner/name", input={"prompt": QUESTION})
        return sum([event.event.value == "output" async for event in cast(AsyncIterator[Any], events)])

    return read


async def httpx_lines(url: str, method: str, path: str, text: Callable[[Any], Any], body: Any) -> Read:
    client = httpx.AsyncClient(base_url=url, timeout=60, limits=httpx.Limits(max_connections=None))
    headers = {"accept": "text/event-stream"}

    async def read() -> int:
        async with client.stream(method, path, json=body, headers=headers) as answer:
            lines = [line async for line in answer.aiter_lines() if line.startswith("data:")]
            return sum(bool(text(json.loads(line[5:]))) for line in lines)

    return read


async def httpx_predict(url: str, _streams: int) -> Read:
    """opensearch-py reads whole answers only."""

    def text(frame: Any) -> Any:
        return frame["inference_results"][0]["output"][0]["dataAsMap"]["content"]

    body = {"parameters": {"messages": MESSAGES, "_llm_interface": "openai/v1/chat/completions"}}
    return await httpx_lines(url, "POST", "/_plugins/_ml/models/m/_predict/stream", text, body)


async def httpx_cog(url: str, _streams: int) -> Read:
    """Cog has no client package."""
    path = f"/predictions/{'0' * 32}"
    return await httpx_lines(url, "PUT", path, lambda data: data.get("chunk"), {"input": {"prompt": QUESTION}})


PLAIN: dict[str, tuple[str, Callable[[str, int], Awaitable[Read]]]] = {
    "openai": ("openai package", openai_package),
    "bedrock": ("boto3, a thread each", boto3_converse),
    "sagemaker-openai": ("boto3, a thread each", boto3_invoke),
    "replicate": ("replicate package", replicate_package),
    "opensearch": ("httpx, aiter_lines", httpx_predict),
    "cog": ("httpx, aiter_lines", httpx_cog),
}
"""What each adapter is measured beside."""


async def main(reader: str, name: str, url: str, streams: int, tokens: int) -> None:
    """Read as that reader does."""
    if reader == "adapter":
        async with adapter(name, url) as read:
            await measure(read, name, streams, tokens)
    else:
        await measure(await PLAIN[name][1](url, streams), name, streams, tokens)


async def measure(read: Read, name: str, streams: int, tokens: int) -> None:
    """Print the CPU microseconds of a token."""
    assert await read() == tokens
    began = time.process_time()
    counts = await asyncio.gather(*(read() for _ in range(streams)))
    spent = time.process_time() - began
    assert counts == [tokens] * streams, f"{name}: tokens were lost"
    print(json.dumps({"microseconds": spent / (streams * tokens) * 1e6, "threads": threading.active_count()}))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])))
