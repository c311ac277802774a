"""Very many streams are read a few at a time, in the order in which what they wait for arrived."""

from __future__ import annotations

import asyncio
import errno
import select
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import cast

import pytest
import uvloop

from adapters.crowd import AT_A_TIME, Crowd

MANY = 5 * AT_A_TIME
SOON = 5


class Stream(asyncio.Protocol):
    """Has `heard` called for all that its connection brings, by whomever that is read."""

    def __init__(self, heard: Callable[[Stream, bytes], None]) -> None:
        self.plain = True
        self.by_the_loop = 0
        self.transport: asyncio.Transport
        self.paused = False
        self.ended = asyncio.Event()
        self._heard = heard

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    @property
    def reading(self) -> asyncio.Transport | None:
        return None if self.paused or self.transport.is_closing() else self.transport

    def eof_received(self) -> None:
        self.ended.set()

    def receive(self, data: bytes) -> None:
        self._heard(self, data)

    def data_received(self, data: bytes) -> None:
        self.by_the_loop += 1
        self.receive(data)


class Upstream:
    """The other ends of many streams."""

    def __init__(self) -> None:
        self.read: list[int] = []
        """Which stream was read, in order."""
        self.bytes: dict[int, bytes] = {}
        self.streams: list[Stream] = []
        self.ends: list[socket.socket] = []
        self.on_read: Callable[[int], None] = lambda number: None
        self.came = asyncio.Event()

    async def open(self, count: int, files: ExitStack) -> None:
        for _ in range(count):
            ours, theirs = socket.socketpair()
            files.enter_context(theirs)
            _, stream = await asyncio.get_running_loop().create_connection(lambda: Stream(self._heard), sock=ours)
            self.streams.append(stream)
            self.ends.append(theirs)

    def _heard(self, stream: Stream, data: bytes) -> None:
        number = self.streams.index(stream)
        self.read.append(number)
        self.bytes[number] = self.bytes.get(number, b"") + data
        self.on_read(number)
        self.came.set()

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait for what reads make true."""
        async with asyncio.timeout(SOON):
            while not true():
                self.came.clear()
                await self.came.wait()

    def close(self) -> None:
        for stream in self.streams:
            stream.transport.abort()


@pytest.fixture
def files() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def on_uvloop(run: Callable[[Upstream, Crowd], object], files: ExitStack, *, over_tls: int = 0) -> Upstream:
    """`run` with streams that have all joined a crowd, on the event loop that runs the service."""
    upstream = Upstream()

    async def main() -> None:
        await upstream.open(MANY + over_tls, files)
        many = Crowd()
        for number, stream in enumerate(upstream.streams):
            stream.plain = number < MANY
            many.join(stream)
        await run(upstream, many)  # type: ignore[misc]  # a coroutine function
        for stream in upstream.streams:
            many.leave(stream)
        upstream.close()

    uvloop.run(main())
    return upstream


async def all_are_read(upstream: Upstream, many: Crowd) -> None:
    """Each is sent something."""
    for end in upstream.ends:
        end.send(b"x")
    await upstream.until(lambda: len(upstream.read) == MANY)


def test_what_arrives_meanwhile_waits_for_one_round_and_not_for_two(files: ExitStack) -> None:
    """All streams but the last always have something; that has something once the first was read."""

    async def run(upstream: Upstream, many: Crowd) -> None:
        def on_read(number: int) -> None:
            if len(upstream.read) == 1:
                upstream.ends[-1].send(b"late")
            if len(upstream.read) < 4 * MANY and number != MANY - 1:
                upstream.ends[number].send(b"more")

        upstream.on_read = on_read
        for end in upstream.ends[:-1]:
            end.send(b"first")
        await upstream.until(lambda: len(upstream.read) >= 3 * MANY)

    read = on_uvloop(run, files).read
    assert read.index(MANY - 1) <= MANY + AT_A_TIME
    assert read[:AT_A_TIME] == list(range(AT_A_TIME))


def test_others_have_their_turn_between(files: ExitStack) -> None:
    turns: list[int] = []

    async def run(upstream: Upstream, many: Crowd) -> None:
        for end in upstream.ends:
            end.send(b"x")
        while len(upstream.read) < MANY:
            before = len(upstream.read)
            await asyncio.sleep(0)
            turns.append(len(upstream.read) - before)

    on_uvloop(run, files)
    assert max(turns) == AT_A_TIME


def test_those_that_the_event_loop_reads_are_not_served_before_the_crowd(files: ExitStack) -> None:
    over_tls = 3 * AT_A_TIME

    async def run(upstream: Upstream, many: Crowd) -> None:
        def on_read(number: int) -> None:
            upstream.ends[number].send(b"more")

        upstream.on_read = on_read
        for end in upstream.ends:
            end.send(b"first")
        await upstream.until(lambda: len(upstream.read) >= 20 * MANY)
        upstream.on_read = lambda number: None

    upstream = on_uvloop(run, files, over_tls=over_tls)
    crowd = sum(number < MANY for number in upstream.read) / MANY
    others = sum(number >= MANY for number in upstream.read) / over_tls
    assert others < 2 * crowd
    assert [stream.by_the_loop > 0 for stream in upstream.streams] == [False] * MANY + [True] * over_tls


def test_who_wants_no_more_is_not_read_until_it_does(files: ExitStack) -> None:
    async def run(upstream: Upstream, many: Crowd) -> None:
        first = upstream.streams[0]
        first.paused = True
        first.transport.pause_reading()
        for end in upstream.ends:
            end.send(b"x")
        await upstream.until(lambda: len(upstream.read) == MANY - 1)
        for _ in range(100):
            await asyncio.sleep(0)
        assert 0 not in upstream.bytes
        first.paused = False
        first.transport.resume_reading()
        many.again(first)
        await upstream.until(lambda: 0 in upstream.bytes)
        assert first.by_the_loop == 0

    assert on_uvloop(run, files).bytes == dict.fromkeys(range(MANY), b"x")


def test_an_end_is_told_after_what_came_before_it(files: ExitStack) -> None:
    async def run(upstream: Upstream, many: Crowd) -> None:
        for end in upstream.ends:
            end.send(b"the last")
            end.close()
        async with asyncio.timeout(SOON):
            await asyncio.gather(*(stream.ended.wait() for stream in upstream.streams))

    assert on_uvloop(run, files).bytes == dict.fromkeys(range(MANY), b"the last")


def test_a_failure_breaks_the_connection_whose_bytes_it_lost_and_no_other(files: ExitStack) -> None:
    async def run(upstream: Upstream, many: Crowd) -> None:
        told: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(str(context["exception"])))

        def on_read(number: int) -> None:
            if number == 1:
                raise RuntimeError("one failed")

        upstream.on_read = on_read
        for end in upstream.ends:
            end.send(b"x")
        await upstream.until(lambda: len(upstream.read) == MANY)
        assert told == ["one failed"]
        assert [stream.reading is None for stream in upstream.streams] == [number == 1 for number in range(MANY)]

    on_uvloop(run, files)


def test_a_crowd_ends_with_half_of_it_and_the_rest_are_read_on(files: ExitStack) -> None:
    async def run(upstream: Upstream, many: Crowd) -> None:
        for number in range(MANY - 1):
            many.leave(upstream.streams[number])
        for end in upstream.ends:
            end.send(b"x")
        await upstream.until(lambda: len(upstream.read) == MANY)
        for number in range(MANY - 1):
            many.join(upstream.streams[number])

    on_uvloop(run, files)


def test_a_descriptor_that_is_anothers_by_now_is_left_to_it(files: ExitStack) -> None:
    async def run(upstream: Upstream, many: Crowd) -> None:
        first = upstream.streams[0]
        descriptor = first.transport.get_extra_info("socket").fileno()
        first.transport.abort()
        await asyncio.sleep(0.01)
        await upstream.open(1, files)
        last = upstream.streams[-1]
        assert last.transport.get_extra_info("socket").fileno() == descriptor
        many.join(last)
        many.leave(first)
        upstream.ends[-1].send(b"mine")
        await upstream.until(lambda: upstream.bytes.get(MANY) == b"mine")
        many.join(first)

    on_uvloop(run, files)


def test_those_of_which_the_system_takes_no_more_are_read_as_ever(
    files: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoll = select.epoll

    class Full:
        def __init__(self) -> None:
            self._epoll = epoll()
            self.fileno, self.poll, self.close = self._epoll.fileno, self._epoll.poll, self._epoll.close

        def register(self, *_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("select.epoll", Full)
    assert all(stream.by_the_loop for stream in on_uvloop(all_are_read, files).streams)


def test_without_another_file_streams_are_read_as_ever(files: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("select.epoll", none_left)
    on_uvloop(all_are_read, files)
