"""How much a key may use, and all keys together: exact, in each wire's shape, with the time to come back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack

import grpc
import httpx
import openai
import pytest
from opensearch.protobufs.services.ml_service_pb2_grpc import MLServiceStub
from websockets.exceptions import InvalidStatus

from gateway.allowance import Allowance, Bill
from gateway.buckets import LocalBuckets
from gateway.config import Limits, Settings
from gateway.errors import RateLimited
from gateway.events import Finished, FinishReason, Usage
from gateway.slots import Slots
from gateway.telemetry import Meter
from tests.conftest import scripted_config
from tests.opensearch.calls import asked, read
from tests.running import Service, running
from tests.sockets import Client, socket
from tests.trust.conftest import ALICE, BOB
from tests.trust.test_conventions import CALLS

REQUESTS, KEYS = 5, [f"sk-canary-{number}" for number in range(20)]


def key(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}"}


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Five requests a minute, two streams and two sockets per key, four sockets in all."""
    limits = {
        "requests_per_minute": REQUESTS,
        "streams_per_key": 2,
        "sockets": 4,
        "sockets_per_key": 2,
        "handshakes_per_minute": 6,
    }
    environment = {"POLYWIRE_API_KEYS": ",".join([ALICE, BOB, *KEYS])}
    folder = tmp_path_factory.mktemp("limited")
    with running(folder, scripted_config(limits=limits), environment=environment, grpc=True) as service:
        yield service


async def test_requests_at_the_same_time_cannot_share_one_allowance(limited: Service) -> None:
    async with httpx.AsyncClient(base_url=limited.url, timeout=20, headers=key(KEYS[0])) as client:
        answers = await asyncio.gather(*(client.get("/v1/models") for _ in range(40)))
    assert sorted(answer.status_code for answer in answers) == [200] * REQUESTS + [429] * (40 - REQUESTS)


@pytest.mark.parametrize("wire", list(CALLS))
async def test_every_wire_says_it_in_its_own_shape_and_when_to_come_back(limited: Service, wire: str) -> None:
    path, body = CALLS[wire]
    name = KEYS[1 + list(CALLS).index(wire)]
    async with httpx.AsyncClient(base_url=limited.url, timeout=20, headers=key(name)) as client:
        for _ in range(REQUESTS):
            assert (await client.post(path, json=body)).status_code in (200, 201)
        refused = await client.post(path, json=body)
        assert (await client.get("/readyz")).status_code == 200
        other = await client.post(path, json=body, headers=key(BOB))
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 60 / REQUESTS + 1
    assert "requests per minute" in refused.text
    assert name not in refused.text
    assert other.status_code in (200, 201, 429)


async def test_openai_clients_read_how_their_key_stands(limited: Service) -> None:
    async with httpx.AsyncClient(base_url=limited.url, timeout=20, headers=key(KEYS[9])) as client:
        left = [(await client.get("/v1/models")).headers for _ in range(REQUESTS + 1)]
    assert [int(headers["x-ratelimit-remaining-requests"]) for headers in left] == [4, 3, 2, 1, 0, 0]
    assert {headers["x-ratelimit-limit-requests"] for headers in left} == {"5"}
    assert all(headers["x-ratelimit-reset-requests"].endswith("ms") for headers in left)
    with (
        openai.OpenAI(base_url=f"{limited.url}/v1", api_key=KEYS[9], max_retries=0) as sdk,
        pytest.raises(openai.RateLimitError) as refused,
    ):
        sdk.models.list()
    assert refused.value.code == "rate_limit_exceeded"


async def test_a_turn_of_a_socket_and_a_call_count_like_requests(limited: Service) -> None:
    async with socket(limited, additional_headers=key(KEYS[10])) as client:
        for _ in range(REQUESTS):
            assert (await client.ask(type="chat", text="hi")).last["type"] == "finished"
        last = (await client.ask(type="chat", text="hi")).last
        assert (last["type"], last["status"], last["code"]) == ("error", 429, "rate_limited")
        assert (await client.ask(type="ping")).kinds == ["pong"]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{limited.grpc_port}") as channel:
        stub = MLServiceStub(channel)
        codes = []
        for _ in range(REQUESTS + 1):
            metadata = (("authorization", f"Bearer {KEYS[11]}"),)
            _, code, _ = await read(stub.PredictModelStream(asked("default", inputs="hi"), metadata=metadata))
            codes.append(code)
    assert codes == [grpc.StatusCode.OK] * REQUESTS + [grpc.StatusCode.RESOURCE_EXHAUSTED]


async def test_a_key_has_so_many_streams_and_another_key_its_own(limited: Service) -> None:
    body = {"model": "hangs-midway", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    async with httpx.AsyncClient(base_url=limited.url, timeout=20) as client, AsyncExitStack() as streams:

        async def begin(name: str) -> httpx.Response:
            stream = client.stream("POST", "/v1/chat/completions", json=body, headers=key(name))
            return await streams.enter_async_context(stream)

        assert [(await begin(KEYS[12])).status_code for _ in range(3)] == [200, 200, 429]
        refused = await begin(KEYS[12])
        assert refused.headers["retry-after"] == "1"
        assert b"2 streams" in await refused.aread()
        assert (await begin(KEYS[13])).status_code == 200


async def test_open_sockets_are_bounded_per_key_and_in_all(limited: Service) -> None:
    def opened(name: str) -> AbstractAsyncContextManager[Client]:
        return socket(limited, additional_headers=key(name))

    async def refused(name: str) -> tuple[int, str | None]:
        with pytest.raises(InvalidStatus) as error:
            async with opened(name):
                raise AssertionError("the handshake was accepted")
        return error.value.response.status_code, error.value.response.headers.get("retry-after")

    async with opened(KEYS[14]), opened(KEYS[14]):
        assert await refused(KEYS[14]) == (429, "1")
        async with opened(KEYS[15]), opened(KEYS[16]):
            assert await refused(KEYS[17]) == (503, "1")
    async with opened(KEYS[17]) as client:
        assert (await client.ask(type="ping")).kinds == ["pong"]


async def test_handshakes_are_counted(limited: Service) -> None:
    for _ in range(6):
        async with socket(limited, additional_headers=key(KEYS[18])):
            pass
    for _ in range(2):
        with pytest.raises(InvalidStatus) as refused:
            async with socket(limited, additional_headers=key(KEYS[18])):
                raise AssertionError("the handshake was accepted")
        assert refused.value.response.status_code == 429
        assert 1 <= int(refused.value.response.headers["retry-after"]) <= 10


class Frozen(LocalBuckets):
    """Buckets in which no time passes."""

    async def take(self, key: str, amount: float, *, capacity: float, per_seconds: float) -> float:
        await asyncio.sleep(0)
        level, _ = self._levels.get(key, (capacity, 0.0))
        if level < amount:
            return (amount - level) * per_seconds / capacity
        self._levels[key] = (min(capacity, level - amount), 0.0)
        return 0.0


def allowance(**limits: int) -> Allowance:
    """Kept in a shared store that answers after a moment."""
    return Allowance(Settings(limits=Limits(**limits), workers=2), Frozen())


def bill_of(bill: Bill, *counts: int) -> None:
    bill.meter = Meter("openai", "m", "p")
    bill.meter.end(Finished(FinishReason.STOP, Usage(*counts)))
    bill.meter.close()


async def test_tokens_are_reserved_before_and_settled_after() -> None:
    tokens = allowance(tokens_per_minute=1000)
    async with tokens.stream("a", 900) as bill:
        with pytest.raises(RateLimited) as refused:
            async with tokens.stream("a", 200):
                raise AssertionError("the same tokens were given twice")
        assert refused.value.retry_after == pytest.approx(6.0)
        async with tokens.stream("b", 900):
            pass
        bill_of(bill, 50, 50)
    async with tokens.stream("a", 900) as bill:
        bill_of(bill, 500, 1000)
    with pytest.raises(RateLimited):
        async with tokens.stream("a", 1):
            raise AssertionError("more was used than reserved, and nothing is left")


async def test_a_request_larger_than_the_whole_allowance_waits_for_all_of_it() -> None:
    tokens = allowance(tokens_per_minute=100)
    async with tokens.stream("a", 10_000):
        with pytest.raises(RateLimited):
            async with tokens.stream("a", 1):
                raise AssertionError("all was reserved")


async def test_all_keys_together_are_bounded_and_a_refusal_takes_nothing() -> None:
    requests = allowance(requests_per_minute=10, all_requests_per_minute=15)
    results = await asyncio.gather(
        *(requests.request(owner) for owner in ("a", "b") for _ in range(20)), return_exceptions=True
    )
    assert sum(result is None for result in results) == 15
    assert all(result is None or isinstance(result, RateLimited) for result in results)


def test_slots_come_back_and_leave_nothing_behind() -> None:
    slots = Slots(3, 2)
    with slots.take("a"), slots.take("a"):
        with pytest.raises(RateLimited):
            slots.demand("a")
        with slots.take("b"), pytest.raises(RateLimited):
            slots.demand("c")
        slots.demand("b")
    assert slots.activity[0] is False
    assert not slots._taken
