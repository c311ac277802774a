"""Clients and upstreams do anything in any order, on every wire: each stream has one outcome, and no slot is lost.

Clients ask, stop reading, read on, leave, cancel and come back; upstreams say more, finish, fail and break off.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tests.contract.openai_entry import row
from tests.contract.wire_clients import clients
from tests.contract.wire_entry import ERROR
from tests.contract.wires import ENTRIES as WIRES
from tests.faults.visits import BEGUN, ENDS, MORE, Upstream, Visit
from tests.running import Service, running
from tests.upstreams.byte_server import Act, Answer, ByteServer

WHOLE = bool(os.environ.get("POLYWIRE_FAULTS"))
STREAMS = 6
OUTCOMES = ("finished", "failed", "truncated", "cancelled")
OUTCOME_OF = {"finish": "finished", "fail": "failed", "cut": "truncated", "reset": "truncated"}
SETTLE_SECONDS = 5.0
T = TypeVar("T")


class AnyOrder(RuleBasedStateMachine):
    """The model: which streams are at work, who reads them, and how many ended how."""

    service: Service
    upstream: Upstream
    runner: asyncio.Runner
    numbers = iter(range(10**9))

    def __init__(self) -> None:
        super().__init__()
        self.at_work: list[Visit] = []
        self.over: list[tuple[Visit, str]] = []
        self.before = self.counted()
        self.outcomes: Counter[str] = Counter()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def counted(self) -> Counter[str]:
        """The outcomes by the service's own count, and the streams that it has at work."""
        found = {name: int(self.service.metric("polywire_streams_total", outcome=name)) for name in OUTCOMES}
        return Counter({**found, "open": int(self.service.metric("polywire_streams_open"))})

    @rule(wire=st.sampled_from(WIRES))
    def ask(self, wire: Any) -> None:
        visit = Visit(self.service, wire, f"question-{next(self.numbers)}.")
        self.run(visit.ask())
        if len(self.at_work) < STREAMS:
            assert visit.begun.is_set(), visit.seen
            self.at_work.append(visit)
            return
        _, read = self.run(visit.answer())
        assert ERROR in read.ends
        assert not read.text

    @precondition(lambda self: self.at_work)
    @rule(which=st.integers(0, STREAMS))
    def stop_reading(self, which: int) -> None:
        self.one(which).reading.clear()

    @precondition(lambda self: self.at_work)
    @rule(which=st.integers(0, STREAMS))
    def read_on(self, which: int) -> None:
        self.one(which).reading.set()

    @precondition(lambda self: self.at_work)
    @rule(which=st.integers(0, STREAMS))
    def say_more(self, which: int) -> None:
        self.said(self.one(which)).tell(*MORE)

    @precondition(lambda self: self.at_work)
    @rule(which=st.integers(0, STREAMS), end=st.sampled_from(sorted(ENDS)))
    def end(self, which: int, end: str) -> None:
        visit = self.one(which)
        self.said(visit).tell(*ENDS[end], last=True)
        self.ended(visit, OUTCOME_OF[end])

    @precondition(lambda self: self.at_work)
    @rule(which=st.integers(0, STREAMS))
    def leave(self, which: int) -> None:
        visit = self.one(which)
        self.run(visit.leave())
        if not visit.owned:
            self.ended(visit, "cancelled")

    @precondition(lambda self: self.at_work)
    @rule(which=st.integers(0, STREAMS), times=st.integers(1, 3))
    def cancel(self, which: int, times: int) -> None:
        visit = self.one(which)
        if (visit.here or visit.owned) and self.run(visit.cancel(times)):
            self.ended(visit, "cancelled")

    @precondition(lambda self: self.at_work)
    @rule(which=st.integers(0, STREAMS))
    def leave_while_it_ends(self, which: int) -> None:
        """Whichever is first, it is one outcome."""
        visit = self.one(which)
        before = self.counted()
        self.said(visit).tell(*ENDS["finish"], last=True)
        self.run(visit.leave())
        deadline = time.monotonic() + SETTLE_SECONDS
        while not (new := (self.counted() - before).keys() & {"finished", "cancelled"}):
            assert time.monotonic() < deadline, "a stream without an outcome"
            self.run(asyncio.sleep(0.01))
        self.ended(visit, *new)

    @precondition(lambda self: any(visit.owned and not visit.here for visit in self.at_work))
    @rule()
    def come_back(self) -> None:
        visit = next(visit for visit in self.at_work if visit.owned and not visit.here)
        self.run(visit.ask(visit.stream_url))

    @precondition(lambda self: self.over)
    @rule(which=st.integers(0, 20))
    def read_to_the_end(self, which: int) -> None:
        self.read(*self.over.pop(which % len(self.over)))

    @invariant()
    def every_stream_is_counted_once(self) -> None:
        expected = self.before + self.outcomes + Counter(open=len(self.at_work))
        deadline = time.monotonic() + SETTLE_SECONDS
        while (found := self.counted()) != expected and time.monotonic() < deadline:
            self.run(asyncio.sleep(0.01))
        assert +found == +expected

    def teardown(self) -> None:
        for visit in list(self.at_work):
            self.run(visit.cancel() if visit.owned else visit.leave())
            self.run(visit.leave())
        for visit, _ in self.over:
            self.run(visit.leave())
        self.outcomes["cancelled"] += len(self.at_work)
        self.at_work.clear()
        self.every_stream_is_counted_once()

    def one(self, which: int) -> Visit:
        return self.at_work[which % len(self.at_work)]

    def said(self, visit: Visit) -> Any:
        return self.upstream.said[visit.question.rstrip(".")]

    def ended(self, visit: Visit, outcome: str) -> None:
        self.at_work.remove(visit)
        self.outcomes[outcome] += 1
        if visit.here:
            self.over.append((visit, outcome))

    def read(self, visit: Visit, outcome: str) -> None:
        """What the client has been told must be what has been counted."""
        _, read = self.run(visit.answer())
        assert read.text.startswith(BEGUN)
        assert (ERROR in read.ends) == (outcome in ("failed", "truncated")), (
            visit.wire.name,
            outcome,
            visit.seen,
            read,
        )
        assert len(read.ends) == 1


@pytest.mark.timeout(1200 if WHOLE else 120)
def test_whatever_the_order_each_stream_has_one_outcome(tmp_path: Path) -> None:
    with _serving(tmp_path):
        run_state_machine_as_test(
            AnyOrder,
            settings=settings(
                max_examples=60 if WHOLE else 4,
                stateful_step_count=40 if WHOLE else 20,
                derandomize=not WHOLE,
                # A shorter example of what came from timing says nothing, and takes minutes to be looked for.
                phases=(Phase.generate,),
                database=None,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )


async def test_what_came_before_a_body_broke_off_is_read_by_a_slow_client_too() -> None:
    """As a failure that is an event, and then the end of a body that is not whole."""
    async with ByteServer({"*": Answer([b"first", 0.05, b"last", Act.DROP])}) as server:

        async def read_late(_: bytes) -> None:
            await server.requests[0].gone.wait()
            for _turn in range(100):
                await asyncio.sleep(0)

        async with clients(cast(Any, SimpleNamespace(url=server.url, ws_url="", grpc_port=1))) as opened:
            opened.taken = read_late
            raw = await opened.post("/", b"{}")
    assert (raw.body, raw.whole) == (b"firstlast", False)


@contextmanager
def _serving(folder: Path) -> Iterator[None]:
    with asyncio.Runner() as runner:
        upstream = Upstream()
        runner.run(upstream.server.__aenter__())
        provider = row(upstream.server.url).model_dump(mode="json", exclude_none=True, exclude_defaults=True)
        config = {
            "providers": [{**provider, "api_key_env": "ORDER_KEY", "retries": 0}],
            "models": [{"id": "m", "provider": provider["name"], "upstream": "m"}],
            "limits": {"streams": STREAMS, "idle_seconds": 600, "first_event_seconds": 600},
        }
        with running(folder, config, environment={"ORDER_KEY": "sk-canary-order"}, grpc=True) as service:
            AnyOrder.service, AnyOrder.upstream, AnyOrder.runner = service, upstream, runner
            yield
            assert service.log.read_text().count("Traceback") == 0
        runner.run(upstream.server.__aexit__())
