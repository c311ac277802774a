"""Several spoken chats at once, with the embedded voice. The figures of a crowd of twenty are `make bench`'s."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.running import Service
from tests.spoken_chats import crowd, listen, spoken_service

SESSIONS = 6


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder: Path = tmp_path_factory.mktemp("spoken")
    with spoken_service(folder) as started:
        yield started


async def test_six_spoken_chats_are_faster_than_they_are_heard_and_hold_up_nobody(service: Service) -> None:
    heard, late = await crowd(service, SESSIONS)
    lengths = [one.audio for one in heard]
    assert min(lengths) > 15.0
    assert max(lengths) - min(lengths) < 1.0
    assert min(one.real_time_factor for one in heard) > 1.0
    assert statistics.median(one.stalled for one in heard) == 0.0
    assert len(late) > 20
    # Nineteen words of twenty, since other programs may hold up the machine.
    assert sorted(late)[int(len(late) * 0.95)] < 0.05


async def test_the_voice_begins_soon_after_the_first_clause(service: Service) -> None:
    # The middle one of three, for the same reason.
    first = sorted([(await listen(service)).first_audio_after_clause for _ in range(3)])
    assert first[1] < 0.3
