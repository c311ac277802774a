"""What every remote provider keeps to: whole text, the true end, and no success for a stream that was cut."""

from __future__ import annotations

import asyncio

import pytest

from gateway.config import ProviderType
from tests.remote.upstreams import (
    EVENT_STREAM,
    KINDS,
    TEXT,
    outcome,
    recorded,
    upstream,
)
from tests.upstreams.byte_server import Act, Answer
from tests.upstreams.cutting import one_byte_each

every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
@pytest.mark.parametrize("line_end", [b"\r\n", b"\r"])
async def test_other_line_ends_and_comments_are_no_text(kind: ProviderType, line_end: bytes) -> None:
    body = b": keep\n\n:\n\n" + recorded(kind).replace(b"\ndata:", b"\n: keep\ndata:").replace(
        b"\n\n", b"\n\n: keep\n\n"
    )
    pieces = one_byte_each(body.replace(b"\n", line_end))
    async with upstream(kind, Answer(pieces, headers=EVENT_STREAM)) as remote:
        text, finished, error = await outcome(remote.events())
    assert (text, error) == (TEXT, None)
    assert finished is not None


@every_kind
async def test_a_stream_ends_with_its_marker_and_not_with_its_connection(kind: ProviderType) -> None:
    async with upstream(kind, Answer([recorded(kind), Act.HANG], headers=EVENT_STREAM)) as remote:
        async with asyncio.timeout(2):
            text, finished, error = await outcome(remote.events())
        request = await remote.stream_request()
        async with asyncio.timeout(2):
            await request.gone.wait()
    assert (text, error) == (TEXT, None)
    assert finished is not None


@every_kind
async def test_line_breaks_and_blanks_survive(kind: ProviderType) -> None:
    tokens = ("a", "\n", "\n\n", "b\nc", " d", "{}", "data: e", "\u2028f")
    async with upstream(kind, Answer(one_byte_each(recorded(kind, tokens)), headers=EVENT_STREAM)) as remote:
        text, _, error = await outcome(remote.events())
    assert (text, error) == ("".join(tokens), None)
