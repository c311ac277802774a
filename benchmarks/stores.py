"""What a recorded stream costs in each store: events written and read per second, and how much later a reader is.

The readers whose delay is measured are another process, as another worker would be. Redis is the benchmark's own.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.table import columns
from gateway.events import Finished, FinishReason, TextDelta
from gateway.ports import Store
from gateway.recording import Recorder, replay
from stores import open_store
from tests.redis_server import redis_server

STREAMS = 100
EVENTS = 200
PACED_SECONDS = 5.0
PACED_EVENTS = 20
"""Per second and stream, as a fast model writes."""
PIPE = "pipe"
DONE = Finished(FinishReason.STOP)


def report() -> str:
    """The table."""
    with tempfile.TemporaryDirectory() as folder, redis_server(Path(folder) / "redis") as redis:
        rows = [
            asyncio.run(_measure("SQLite", f"sqlite:///{folder}/polywire.db")),
            asyncio.run(_measure("Redis", redis.url)),
        ]
    paced = f"delay of {STREAMS} readers at {PACED_EVENTS} events/s each, ms"
    rows.append(("none: a pipe", "", "", *asyncio.run(_measure_pipe())))
    head = ("store", "events written/s", "events read/s", f"{paced}: median", "p99", "most")
    return columns("The store", head, rows)


async def _measure(name: str, url: str) -> tuple[str, ...]:
    async with _opened(url) as store:
        began = time.perf_counter()
        await asyncio.gather(*(_write(store, f"fast{number}") for number in range(STREAMS)))
        written = STREAMS * EVENTS / (time.perf_counter() - began)
        began = time.perf_counter()
        await asyncio.gather(*(_read(store, f"fast{number}") for number in range(STREAMS)))
        read = STREAMS * EVENTS / (time.perf_counter() - began)
        delays = await _paced(store, url)
    return (name, f"{written:,.0f}", f"{read:,.0f}", *_figures(delays))


def _figures(delays: list[float]) -> tuple[str, ...]:
    values = (statistics.median(delays), statistics.quantiles(delays, n=100)[98], max(delays))
    return tuple(f"{delay * 1000:.1f}" for delay in values)


async def _write(store: Store, log: str) -> None:
    recorder = Recorder(store, log)
    for _ in range(EVENTS):
        await recorder.add(TextDelta(" token"))
        await asyncio.sleep(0)
    await recorder.flush()
    await recorder.close(DONE, ttl=600)


async def _read(store: Store, log: str) -> None:
    events = [event async for event in replay(store, log)]
    assert len(events) == EVENTS + 1


async def _measure_pipe() -> tuple[str, ...]:
    """The same beat over a pipe: what the machine itself delays at this moment."""
    reader = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.stores", PIPE, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    pipe, said = reader.stdin, reader.stdout
    assert pipe is not None
    assert said is not None
    await said.readline()

    async def say(phase: float) -> None:
        await asyncio.sleep(phase / PACED_EVENTS)
        for _ in range(int(PACED_SECONDS * PACED_EVENTS)):
            pipe.write(f"{time.monotonic()}\n".encode())
            await asyncio.sleep(1 / PACED_EVENTS)

    await asyncio.gather(*(say(number / STREAMS) for number in range(STREAMS)))
    pipe.close()
    answer, _ = await reader.communicate()
    return _figures(json.loads(answer))


async def _paced(store: Store, url: str) -> list[float]:
    """Seconds from the recording of each event to its arrival in another process."""
    reader = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.stores", url, stdout=asyncio.subprocess.PIPE
    )
    assert reader.stdout is not None
    await reader.stdout.readline()
    await asyncio.gather(*(_say_the_time(store, f"paced{number}", number / STREAMS) for number in range(STREAMS)))
    async with asyncio.timeout(60):
        answer, _ = await reader.communicate()
    delays: list[float] = json.loads(answer)
    return delays


async def _say_the_time(store: Store, log: str, phase: float) -> None:
    recorder = Recorder(store, log)
    await asyncio.sleep(phase / PACED_EVENTS)
    for _ in range(int(PACED_SECONDS * PACED_EVENTS)):
        await recorder.add(TextDelta(repr(time.monotonic())))
        await asyncio.sleep(1 / PACED_EVENTS)
    await recorder.flush()
    await recorder.close(DONE, ttl=600)


async def _hear_the_time(url: str) -> None:
    """The other process: say that it listens, then how late each event came."""

    async def hear(log: str) -> list[float]:
        return [
            time.monotonic() - float(event.text) async for event in replay(store, log) if isinstance(event, TextDelta)
        ]

    async with _opened(url) as store:
        hearing = [asyncio.create_task(hear(f"paced{number}")) for number in range(STREAMS)]
        await asyncio.sleep(1)  # all of them have subscribed
        print("ready", flush=True)
        delays = [delay for each in hearing for delay in await each]
    print(json.dumps(delays))


def _hear_a_pipe() -> None:
    print("ready", flush=True)
    delays = [time.monotonic() - float(line) for line in iter(sys.stdin.readline, "")]
    print(json.dumps(delays))


@asynccontextmanager
async def _opened(url: str) -> AsyncIterator[Store]:
    store = open_store(url)
    try:
        yield store
    finally:
        await store.aclose()


if __name__ == "__main__":
    if sys.argv[1] == PIPE:
        _hear_a_pipe()
    else:
        asyncio.run(_hear_the_time(sys.argv[1]))
