"""A client that leaves stops its provider at once: before the first token, midway, while it is silent (case X1)."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable

import psutil
import pytest

from tests.running import Service

PATHS: dict[str, Callable[[str], dict[str, object]]] = {
    "/generate": lambda model: {"prompt": "hi", "model": model},
    "/v1/chat/completions": lambda model: {
        "model": model,
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
    },
    "/v1/completions": lambda model: {"model": model, "prompt": "hi", "stream": True},
    "/v1/responses": lambda model: {"model": model, "input": "hi", "stream": True},
}


def asked(path: str, model: str, padding: int = 0) -> bytes:
    """A request as it is sent."""
    body = json.dumps(PATHS[path](model) | ({"padding": " " * padding} if padding else {})).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def leave(service: Service, path: str, model: str, *, after: bytes | None, padding: int = 0) -> None:
    """Send a request and hang up: at once, or when `after` has been read."""
    with socket.create_connection(("127.0.0.1", service.port), timeout=5) as connection:
        connection.sendall(asked(path, model, padding))
        read = b""
        while after is not None and after not in read:
            read += connection.recv(65536)
        if after is None:
            wait_for(lambda: service.metric("polywire_streams_open") >= 1)


def wait_for(held: Callable[[], bool], seconds: float = 2.0) -> None:
    deadline = time.monotonic() + seconds
    while not held():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("model", "after"), [("silent", None), ("hangs-midway", b"Hello")])
def test_leaving_closes_the_provider(service: Service, path: str, model: str, after: bytes | None) -> None:
    wire = "generate" if path == "/generate" else "openai"
    before = service.metric("polywire_streams_total", wire=wire, outcome="cancelled")
    leave(service, path, model, after=after)
    left_at = time.monotonic()
    wait_for(lambda: service.metric("polywire_streams_total", wire=wire, outcome="cancelled") == before + 1)
    assert time.monotonic() - left_at < 0.5
    assert service.metric("polywire_streams_open") == 0


@pytest.mark.parametrize("padding", [60_000, 70_000, 300_000])
def test_leaving_is_seen_behind_a_large_body(service: Service, padding: int) -> None:
    before = service.metric("polywire_streams_total", wire="openai", outcome="cancelled")
    leave(service, "/v1/chat/completions", "silent", after=None, padding=padding)
    wait_for(lambda: service.metric("polywire_streams_total", wire="openai", outcome="cancelled") == before + 1)


@pytest.mark.parametrize("together", [True, False])
def test_leaving_is_seen_behind_the_next_request(service: Service, together: bool) -> None:
    before = service.metric("polywire_streams_total", wire="openai", outcome="cancelled")
    path = "/v1/chat/completions"
    with socket.create_connection(("127.0.0.1", service.port), timeout=5) as connection:
        if together:
            connection.sendall(asked(path, "silent") + asked(path, "hello"))
        else:
            connection.sendall(asked(path, "silent"))
        wait_for(lambda: service.metric("polywire_streams_open") == 1)
        if not together:
            connection.sendall(asked(path, "hello"))
    wait_for(lambda: service.metric("polywire_streams_total", wire="openai", outcome="cancelled") == before + 1)
    assert service.metric("polywire_streams_open") == 0


def test_two_hundred_departures_leave_nothing_behind(service: Service) -> None:
    def held() -> tuple[int, int]:
        worker = service.workers()[0]
        return worker.num_fds(), worker.num_threads()

    for path in PATHS:
        leave(service, path, "hangs-midway", after=b"Hello")
    wait_for(lambda: service.metric("polywire_streams_open") == 0)
    before, memory_before = held(), service.workers()[0].memory_info().rss
    for number in range(200):
        leave(service, list(PATHS)[number % 2], "hangs-midway", after=b"Hello")
    wait_for(lambda: service.metric("polywire_streams_open") == 0)
    wait_for(lambda: held()[0] <= before[0] + 1)
    assert held()[1] <= before[1]
    assert service.workers()[0].memory_info().rss - memory_before < 8 * 1024 * 1024


@pytest.mark.parametrize("path", PATHS)
def test_a_reader_that_stops_costs_at_most_a_mebibyte(service: Service, path: str) -> None:
    """Case P1: answers of 33 MB, and nobody reads; leaving then stops them at once."""
    worker: psutil.Process = service.workers()[0]
    readers = []
    before = worker.memory_info().rss
    for _ in range(8):
        reader = socket.socket()
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.connect(("127.0.0.1", service.port))
        reader.sendall(asked(path, "flood"))
        readers.append(reader)
    try:
        wait_for(lambda: service.metric("polywire_streams_open") == 8, 10)
        grown = worker.memory_info().rss - before
        assert grown < 8 * 1024 * 1024
        started = time.monotonic()
        service.get("/readyz")
        assert time.monotonic() - started < 0.2
    finally:
        for reader in readers:
            reader.close()
    left = time.monotonic()
    wait_for(lambda: service.metric("polywire_streams_open") == 0)
    assert time.monotonic() - left < 1.0
