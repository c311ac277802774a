"""The columns: the contract suite's fakes, each behind a row of its own for every behaviour."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx

from gateway.config import ProviderRow
from tests.contract import aws_entries, openai_entry, remote_entries
from tests.contract.entry import ProviderEntry, Routes
from tests.contract.scenario import Refusal, Scenario
from tests.matrix.column import BEHAVIOURS, CANCEL, CUT, FIRST, MIDWAY, SOON, TEXT, Column, Upstream
from tests.opensearch.cluster import Cluster, completion, openai_connector
from tests.running import Service
from tests.upstreams import openai_streams
from tests.upstreams.byte_server import Act, Answer, ByteServer, Framing, Request, Route, json_answer

REFUSALS = 1000
"""As many as a fake is asked: it never answers after all."""
SCENARIOS = {
    TEXT: Scenario(),
    FIRST: Scenario(refusals=(Refusal(429, headers={"retry-after": "60"}),) * REFUSALS),
    MIDWAY: Scenario(pieces_before=2, then=b""),
    CANCEL: Scenario(pieces_before=2, then=Act.HANG),
    CUT: Scenario(pieces_before=2, then=Act.DROP),
}
ENTRIES = (
    openai_entry.ENTRY,
    aws_entries.BEDROCK,
    *aws_entries.SAGEMAKER,
    remote_entries.REPLICATE,
    remote_entries.COG,
    remote_entries.OPENSEARCH,
)
NO_USAGE = {"u": "a cluster tells nobody how many tokens there were"}
NO_MIDDLE = {"m": "a service that is asked for a whole answer has no middle to fail in"}
COMPLETION = json_answer(completion(Scenario().text) | {"usage": openai_streams.usage(9, 3)})
WHOLE = {
    TEXT: COMPLETION,
    CANCEL: replace(COMPLETION, steps=(COMPLETION.body[:9], Act.HANG), framing=Framing.CHUNKED),
    CUT: replace(COMPLETION, truncated_at=9),
}
TRUST = {"trusted_endpoints": [r"^http://127\.0\.0\.1:\d+/.*$"]}


def model_rows(model: str, provider: str, upstream: str, kind: str = "chat") -> list[dict[str, Any]]:
    """One model by its id, and by one of the two parts that Replicate's clients can name."""
    row = {"provider": provider, "upstream": upstream, "kind": kind}
    return [{"id": model, **row}, {"id": f"matrix/{model}", **row}]


@asynccontextmanager
async def fakes() -> AsyncIterator[list[Column]]:
    """A column for each fake of a vendor, and one for models that ML Commons clients register."""
    async with AsyncExitStack() as stack:
        columns = [await _with_rows(stack, entry) for entry in ENTRIES]
        yield [*columns, await _connector(stack)]


async def _with_rows(stack: AsyncExitStack, entry: ProviderEntry) -> Column:
    assert entry.row is not None
    assert entry.routes is not None
    column = Column(entry.name, {}, usage=entry.usage, cannot=NO_USAGE if entry.usage is None else {})
    for behaviour in BEHAVIOURS:
        server = await serving(stack, entry.routes, behaviour)
        row = entry.row(server.url)
        name = f"{entry.name}-{behaviour}"
        column.rows.append(plain(row, name))
        column.models += model_rows(name, name, entry.model)
        column.upstreams[behaviour] = upstream(server, name)
    return column


async def _connector(stack: AsyncExitStack) -> Column:
    column = Column("connector", {}, cannot_whole=NO_MIDDLE)
    servers = {behaviour: await serving(stack, openai_entry.routes, behaviour) for behaviour in BEHAVIOURS}
    for behaviour in (TEXT, CANCEL, CUT):
        [(path, streamed)] = servers[behaviour].routes.items()
        servers[behaviour].routes[path] = _streamed_or_whole(streamed, WHOLE[behaviour])

    async def join(service: Service) -> None:
        async with httpx.AsyncClient(base_url=service.url) as client:
            for behaviour, server in servers.items():
                model = await Cluster(service, client).register(openai_connector(server.url))
                column.upstreams[behaviour] = replace(upstream(server, model), owner=None)

    column.join = join
    return column


def _streamed_or_whole(streamed: Route, whole: Answer) -> Route:
    """`_predict` asks a connector's service as its template says, which is not for a stream."""
    assert not callable(streamed)
    assert not isinstance(streamed, Answer)
    [answer] = streamed
    return lambda request: answer if request.json.get("stream") else whole


async def serving(stack: AsyncExitStack, routes: Routes, behaviour: str) -> ByteServer:
    server = await stack.enter_async_context(ByteServer({}))
    server.routes.update(routes(SCENARIOS[behaviour], server.url))
    return server


def plain(row: ProviderRow, name: str) -> dict[str, Any]:
    """The row as polywire.yaml has it."""
    return {**row.model_dump(mode="json", exclude_defaults=True), "name": name, "retries": 0}


def upstream(server: ByteServer, model: str) -> Upstream:
    """A fake's answers at its first route, which is that of its stream."""

    def open_requests() -> Sequence[Request]:
        return [request for request in server.asked(next(iter(server.routes))) if not request.ended.is_set()]

    async def begun() -> None:
        await server.until(lambda: bool(open_requests()))
        async with asyncio.timeout(SOON):
            await asyncio.gather(*(request.written.wait() for request in open_requests()))

    async def left() -> None:
        """Of all the requests that came, there was one, and every one is over."""
        asked = server.asked(next(iter(server.routes)))
        assert asked
        async with asyncio.timeout(SOON):
            await asyncio.gather(*(request.gone.wait() for request in asked))

    return Upstream(model, begun, left)
