"""SIGTERM with a hundred live streams: who is refused, what each client sees, and when the process is gone."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from socket import create_connection
from typing import Any

import grpc
import httpx
import psutil
import pytest
import websockets
from opensearch.protobufs.services.ml_service_pb2_grpc import MLServiceStub

from gateway.prediction import load
from stores import open_store
from tests.conftest import scripted_config
from tests.opensearch.calls import asked, read
from tests.running import Service, is_open, running
from tests.shutdown.clients import MESSAGES, POSTS, Client, every_kind, sent
from tests.upstreams.byte_server import Act, Answer, ByteServer

OF_EACH = 5
LIMIT = 2.5
LONG = 60.0
"""A limit that no test waits for."""
AFTER_LIMIT = 2.0
"""For the last events, the end of the worker and that of its supervisor; 0.6 s on a free machine."""
BEAT_SECONDS = 0.01
IDLE_SECONDS = 0.02
"""Of CPU in a fifth of a second: what it costs to be asked for metrics."""
FIRST_CHUNK = b'data: {"choices": [{"index": 0, "delta": {"content": "Hello"}}]}\n\n'


@asynccontextmanager
async def stoppable(
    paths: pytest.TempPathFactory, upstream: str = "http://127.0.0.1:9", *, limit: float = LIMIT, **options: Any
) -> AsyncIterator[tuple[Service, httpx.AsyncClient]]:
    """A service that may drain for `limit` seconds, and an HTTP client that keeps no connection."""
    config = scripted_config(limits={"drain_seconds": limit})
    config["providers"].append({"name": "remote", "type": "openai", "base_url": f"{upstream}/v1"})
    config["models"] += [
        {"id": "remote", "provider": "remote", "upstream": "m"},
        {"id": "test/hangs", "provider": "script", "upstream": "hangs-midway"},
    ]
    with running(paths.mktemp("stop"), config, grpc=True, **options) as service:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        async with httpx.AsyncClient(base_url=service.url, timeout=30, limits=limits) as http:
            yield service, http


async def started(clients: list[Client]) -> list[asyncio.Task[str]]:
    """The clients' tasks, once every stream is at work."""
    tasks = [asyncio.create_task(client.run(client)) for client in clients]
    async with asyncio.timeout(30):
        for client in clients:
            await client.begun.wait()
    return tasks


@dataclass
class Machine:
    """What other programs took meanwhile: the seconds that timers of this process were late, all together."""

    late: float = 0.0


@asynccontextmanager
async def watching_the_machine() -> AsyncIterator[Machine]:
    """Within the block a timer beats. What makes it late makes an exit of three processes as much later for each."""
    machine = Machine()

    async def beat() -> None:
        while True:
            due = time.monotonic() + BEAT_SECONDS
            await asyncio.sleep(BEAT_SECONDS)
            machine.late += time.monotonic() - due

    beating = asyncio.create_task(beat())
    try:
        yield machine
    finally:
        beating.cancel()
        await asyncio.wait([beating])


async def gone(service: Service) -> None:
    """Wait for the supervisor's end."""
    await asyncio.to_thread(service.process.wait, 30)


async def stored_ends(service: Service) -> Counter[str]:
    """How the predictions that the service left behind ended."""
    store = open_store(f"sqlite:///{service.log.parent / 'polywire.db'}")
    try:
        kept = [load(document.value) for document in await store.list("prediction", owner="", limit=1000)]
    finally:
        await store.aclose()
    return Counter(f"{prediction.status}: {prediction.error}" for prediction in kept)


async def test_each_of_a_hundred_clients_sees_the_end_of_its_own_protocol(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    hanging = Answer([FIRST_CHUNK, Act.HANG])
    async with (
        ByteServer({"/v1/chat/completions": hanging}) as upstream,
        stoppable(tmp_path_factory, upstream.url) as (service, http),
    ):
        clients = [client for _ in range(OF_EACH) for client in every_kind(service, http)]
        clients.sort(key=lambda client: "in time" in client.kind)
        tasks = await started(clients)
        assert len(tasks) >= 100
        async with watching_the_machine() as machine:
            began = time.monotonic()
            service.process.send_signal(signal.SIGTERM)
            seen = await asyncio.gather(*tasks)
            streams_over = time.monotonic() - began
            await gone(service)
            over = time.monotonic() - began

        expected = {client.kind: client.sees for client in clients}
        table = Counter((client.kind, line) for client, line in zip(clients, seen, strict=True))
        printed = "\n".join(f"{n:3d} x {kind}: {line}" for (kind, line), n in table.items())
        figures = (
            f"streams over after {streams_over:.2f} s, process after {over:.2f} s, timers late {machine.late:.2f} s"
        )
        print(f"{printed}\n{figures}")  # noqa: T201
        assert dict(table.keys()) == expected
        assert all(count == OF_EACH for count in table.values())
        assert streams_over < LIMIT + AFTER_LIMIT
        assert over < LIMIT + AFTER_LIMIT + 3 * machine.late
        assert len(upstream.requests) == OF_EACH
        async with asyncio.timeout(5):
            for request in upstream.requests:
                await request.gone.wait()

        stopped = "failed: The service was stopped while this prediction ran; create it again."
        assert await stored_ends(service) == Counter({stopped: OF_EACH})
        lines = Counter(line["outcome"] for line in service.access_lines() if "model" in line)
        assert set(lines) == {"failed", "finished"}
        assert lines["finished"] == 3 * OF_EACH


async def test_readiness_flips_and_new_work_is_refused_while_streams_drain(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    async with stoppable(tmp_path_factory, limit=LONG) as (service, http):
        (client,) = (client for client in every_kind(service, http) if client.kind == "openai chat")
        (task,) = await started([client])
        assert (await http.get("/readyz")).status_code == 200
        service.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(10):
            while (await http.get("/readyz")).status_code != 503:
                pass
        assert (await http.get("/livez")).status_code == 200
        assert (await http.get("/ping")).status_code == 503

        for post in POSTS.values():
            answer = await http.post(**sent(post, "hello"))
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "2"), post
            assert answer.headers["connection"] == "close"
            assert "Polywire is shutting down" in json.dumps(answer.json())
            assert answer.headers["x-request-id"]
        answer = await http.post("/v1/models/test/echo/predictions", json={"input": {"prompt": "hi"}})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
        assert answer.json()["title"] == "Service Unavailable"

        async with websockets.connect(f"{service.ws_url}/ws") as socket:
            assert json.loads(await socket.recv())["code"] == "shutting_down"
            with pytest.raises(websockets.ConnectionClosed):
                await socket.recv()
            assert socket.close_code == 1012
        async with grpc.aio.insecure_channel(f"127.0.0.1:{service.grpc_port}") as channel:
            _, code, _ = await read(MLServiceStub(channel).PredictModelStream(asked("hello", inputs="hi")))
            assert code is grpc.StatusCode.UNAVAILABLE

        # A second Ctrl-C does not wait for the rest of the limit.
        began = time.monotonic()
        for _ in range(2):
            service.process.send_signal(signal.SIGINT)
            await asyncio.sleep(0)
        assert await task == client.sees
        await gone(service)
        assert time.monotonic() - began < LONG / 3


async def test_an_idle_service_stops_at_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    async with stoppable(tmp_path_factory, limit=LONG) as (service, _):
        began = time.monotonic()
        service.process.send_signal(signal.SIGTERM)
        await gone(service)
        assert time.monotonic() - began < LONG / 3


async def test_every_worker_drains_without_the_servers_own_bound(tmp_path_factory: pytest.TempPathFactory) -> None:
    async with stoppable(tmp_path_factory, limit=1, workers=2, grace=0) as (service, http):
        kinds = ("generate", "openai chat", "ws, chat")
        clients = [client for _ in range(8) for client in every_kind(service, http) if client.kind in kinds]
        tasks = await started(clients)
        workers = service.workers()
        async with watching_the_machine() as machine:
            began = time.monotonic()
            service.process.send_signal(signal.SIGTERM)
            # A service manager tells the workers as well.
            for worker in workers:
                os.kill(worker.pid, signal.SIGTERM)
            seen = await asyncio.gather(*tasks)
            assert seen == [client.sees for client in clients]
            await gone(service)
            assert time.monotonic() - began < 1 + AFTER_LIMIT + 3 * machine.late


async def test_workers_whose_supervisor_is_killed_drain_and_leave(tmp_path_factory: pytest.TempPathFactory) -> None:
    async with stoppable(tmp_path_factory, limit=LONG, workers=2, grace=0) as (service, http):
        clients = [client for client in every_kind(service, http) if client.kind == "openai, ends in time"]
        tasks = await started(clients)
        workers = service.workers()
        service.process.kill()
        assert await asyncio.gather(*tasks) == [client.sees for client in clients]
        _, left = await asyncio.to_thread(psutil.wait_procs, workers, LONG / 3)
        assert len(workers) == 2
        assert not left
        assert not is_open(service.port)


async def test_clients_that_do_not_read_do_not_hold_up_the_end(tmp_path_factory: pytest.TempPathFactory) -> None:
    async with stoppable(tmp_path_factory, limit=0.5) as (service, _), AsyncExitStack() as stack:
        for path, body in UNREAD.items():
            stack.enter_context(unread(service, path, body))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{service.grpc_port}"))
        call = MLServiceStub(channel).PredictModelStream(asked("flood", inputs="hi"))
        socket = await stack.enter_async_context(websockets.connect(f"{service.ws_url}/ws", max_queue=1))
        await socket.send(json.dumps({"type": "chat", "text": "hi", "model": "flood"}))
        async with asyncio.timeout(30):
            await call.read()
            await stuck(service, len(UNREAD) + 2)
        async with watching_the_machine() as machine:
            began = time.monotonic()
            service.process.send_signal(signal.SIGTERM)
            await gone(service)
            over = time.monotonic() - began
        print(f"process after {over:.2f} s, timers late {machine.late:.2f} s")  # noqa: T201
        assert over < 0.5 + AFTER_LIMIT + 3 * machine.late
        assert "Traceback" not in service.log.read_text()


async def stuck(service: Service, streams: int) -> None:
    """Wait until so many streams are open and their worker has nothing to do any more: what they can fill is full."""
    (worker,) = service.workers()
    spent, before = 0.0, -1.0
    while service.metric("polywire_streams_open") < streams or spent - before > IDLE_SECONDS:
        await asyncio.sleep(0.2)
        before, spent = spent, sum(worker.cpu_times()[:2])


UNREAD: dict[str, dict[str, Any]] = {
    "/generate": {"model": "flood", "prompt": "hi"},
    "/v1/chat/completions": {"model": "flood", "messages": MESSAGES, "stream": True},
    "/v1/audio/speech": {"model": "voice-floods", "input": "hi"},
}


@contextmanager
def unread(service: Service, path: str, body: dict[str, Any]) -> Iterator[None]:
    """A client that asks for a stream without end and reads nothing of it."""
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    )
    with create_connection(("127.0.0.1", service.port)) as client:
        client.sendall(head.encode() + content)
        yield
