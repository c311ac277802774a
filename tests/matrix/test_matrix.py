"""Any client, any provider: one running service with every provider behind it is asked by every official client.

`make matrix` writes the table into README.md; here it must stand there as it was proved.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
import pytest_asyncio

from tests.contract.entry import CANARY, CANARY_ENV
from tests.matrix import table
from tests.matrix.client import Client
from tests.matrix.clients import CLIENTS
from tests.matrix.column import LETTER, OUTCOMES, TEXT, Column, until
from tests.matrix.columns import TRUST, fakes
from tests.matrix.desk import Desk, desk
from tests.matrix.embedded import ENVIRONMENT, embedded
from tests.matrix.proving import Proofs, unsayable
from tests.matrix.scripts import peers, scripted
from tests.matrix.speech_columns import voices
from tests.running import Service, running

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    # openai-python's way of using websockets 17
    pytest.mark.filterwarnings("ignore:connect.. must be used as a context manager:DeprecationWarning"),
]
AT_ONCE = 4
SECRETS = {CANARY_ENV: CANARY, "CONTRACT_USER": "polywire", "AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any"}


@dataclass
class Hall:
    """Where the clients meet the providers, and what was proved so far."""

    service: Service
    desk: Desk
    columns: list[Column]
    proofs: Proofs = field(default_factory=Proofs)
    proved: dict[tuple[str, str], str] = field(default_factory=dict)


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Column]]:
    with peers(tmp_path_factory.mktemp("peer")) as columns:
        yield columns


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hall(tmp_path_factory: pytest.TempPathFactory, second: list[Column]) -> AsyncIterator[Hall]:
    folder = tmp_path_factory.mktemp("matrix")
    async with fakes() as vendors, voices(folder) as speakers:
        columns = [scripted(folder), embedded(folder), *vendors, *speakers, *second]
        config = {
            "providers": [row for column in columns for row in column.rows],
            "models": [row for column in columns for row in column.models],
            "connectors": TRUST,
        }
        environment = {**SECRETS, **ENVIRONMENT, "TMPDIR": str(folder)}
        with running(folder, config, environment=environment, grpc=True) as service:
            for column in columns:
                if column.join is not None:
                    await column.join(service)
            async with desk(service) as opened:
                yield Hall(service, opened, columns)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
async def test_one_client_with_every_provider(hall: Hall, client: Client) -> None:
    columns = [column for column in hall.columns if column.kind == client.kind]
    before = len(hall.service.access_lines())
    hall.proofs.again.clear()
    room = asyncio.Semaphore(AT_ONCE)

    async def prove(column: Column) -> None:
        async with room:
            hall.proved[client.name, column.name] = await hall.proofs.cell(hall.desk, client, column)

    async with asyncio.TaskGroup() as tasks:
        for column in columns:
            if not column.alone:
                tasks.create_task(prove(column))
    for column in columns:
        if column.alone:
            await prove(column)
    await _logged(hall, client, columns, before)


async def _logged(hall: Hall, client: Client, columns: list[Column], before: int) -> None:
    """The service's own account of it: every stream with its true outcome, and no other."""
    expected = Counter({(model, OUTCOMES[TEXT]): count for model, count in hall.proofs.again.items()}) + Counter(
        (upstream.model, OUTCOMES[behaviour])
        for column in columns
        for behaviour, upstream in column.upstreams.items()
        if LETTER[behaviour] not in unsayable(client, column)
    )

    def seen() -> Counter[tuple[str, str]]:
        lines = hall.service.access_lines()[before:]
        return Counter(
            (line["model"].removeprefix("matrix/"), line["outcome"])
            for line in lines
            if line["wire"] == client.wire and "model" in line
        )

    with suppress(AssertionError):
        await until(lambda: seen() == expected)
    assert seen() == expected


async def test_the_readme_has_the_table_as_it_was_proved(hall: Hall, capsys: pytest.CaptureFixture[str]) -> None:
    missing = [
        (client.name, column.name)
        for client in CLIENTS
        for column in hall.columns
        if client.kind == column.kind and (client.name, column.name) not in hall.proved
    ]
    assert missing == []
    text = table.table(CLIENTS, hall.columns, hall.proved)
    if os.environ.get("POLYWIRE_MATRIX"):
        table.write(text)
        with capsys.disabled():
            proofs = sum(map(len, hall.proved.values()))
            print(f"\n{text}\n{len(hall.proved)} cells, {proofs} proofs")  # noqa: T201 - what make matrix shows
    assert table.in_readme() == text
