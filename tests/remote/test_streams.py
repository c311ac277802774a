"""What every remote provider keeps to: whole text, the true end, and no success for a stream that was cut."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from adapters.cog_events import CogDecoder
from adapters.opensearch_frames import PredictDecoder
from adapters.replicate_events import PredictionDecoder
from gateway.config import ProviderRow, ProviderType
from gateway.errors import GatewayError, Truncated
from gateway.events import Failed, Finished, FinishReason, TextDelta, Usage
from tests.remote.upstreams import EVENT_STREAM, HELLO, KINDS, TEXT, outcome, recorded, upstream
from tests.upstreams.byte_server import Act, Answer, Framing
from tests.upstreams.cutting import one_byte_each

every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
async def test_text_is_whole_when_bytes_arrive_one_byte_each(kind: ProviderType) -> None:
    stream = Answer(one_byte_each(recorded(kind)), headers=EVENT_STREAM, framing=Framing.CLOSE)
    async with upstream(kind, stream) as remote:
        text, finished, error = await outcome(remote.events())
    assert (text, error) == (TEXT, None)
    usage = Usage(input_tokens=3, output_tokens=5) if kind == "cog" else None
    assert finished == Finished(FinishReason.STOP, usage)


@every_kind
async def test_each_piece_is_its_own_delta(kind: ProviderType) -> None:
    async with upstream(kind, Answer([recorded(kind)], headers=EVENT_STREAM)) as remote:
        texts = [event.text async for event in remote.events() if isinstance(event, TextDelta)]
    assert texts == list(HELLO)


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
async def test_a_compressed_stream_is_read(kind: ProviderType) -> None:
    headers = {**EVENT_STREAM, "content-encoding": "gzip"}
    async with upstream(kind, Answer([gzip.compress(recorded(kind))], headers=headers)) as remote:
        text, finished, error = await outcome(remote.events())
    assert (text, error) == (TEXT, None)
    assert finished is not None


@every_kind
async def test_line_breaks_and_blanks_survive(kind: ProviderType) -> None:
    tokens = ("a", "\n", "\n\n", "b\nc", " d", "{}", "data: e", "\u2028f")
    async with upstream(kind, Answer(one_byte_each(recorded(kind, tokens)), headers=EVENT_STREAM)) as remote:
        text, _, error = await outcome(remote.events())
    assert (text, error) == ("".join(tokens), None)


def _replicate(row: ProviderRow) -> tuple[Any, Callable[[], None]]:
    decoder = PredictionDecoder(row)

    def finish() -> None:
        decoder.cut()
        raise decoder.truncated()

    return decoder, finish


def _cog(row: ProviderRow) -> tuple[Any, Callable[[], None]]:
    decoder = CogDecoder(row)
    return decoder, decoder.finish


def _opensearch(row: ProviderRow) -> tuple[Any, Callable[[], None]]:
    decoder = PredictDecoder(row)
    return decoder, decoder.finish


@pytest.mark.parametrize(("kind", "make"), [("replicate", _replicate), ("cog", _cog), ("opensearch", _opensearch)])
def test_a_stream_cut_after_any_byte_is_truncated(kind: ProviderType, make: Callable[[ProviderRow], Any]) -> None:
    row, body = ProviderRow(name="far", type=kind), recorded(kind)
    terminal = len(body) - 1
    for length in range(terminal):
        decoder, finish = make(row)
        text = "".join(decoder.feed(body[:length]))
        assert TEXT.startswith(text)
        assert not decoder.ended
        with pytest.raises(Truncated):
            finish()
    decoder, _ = make(row)
    assert "".join(decoder.feed(body)) == TEXT
    assert decoder.ended


def _sample(kind: ProviderType) -> Iterator[int]:
    size = len(recorded(kind))
    return iter((0, 1, size // 4, size // 2, size - 60, size - 2, size - 1))


@every_kind
@pytest.mark.parametrize("how", ["close", "chunked", "reset"])
async def test_a_cut_connection_gives_the_text_so_far_and_a_failure(kind: ProviderType, how: str) -> None:
    for length in _sample(kind):
        fields: dict[str, Any] = (
            {"framing": "chunked", "ending": "reset"} if how == "reset" else {"framing": how, "ending": "cut"}
        )
        async with upstream(kind, Answer([recorded(kind)[:length]], headers=EVENT_STREAM, **fields)) as remote:
            text, finished, error = await outcome(remote.events())
        assert TEXT.startswith(text)
        assert finished is None
        assert isinstance(error, GatewayError)
        assert error.status == 502 or (error.status == 503 and not text)
        assert how == "reset" or kind == "opensearch" or not error.retryable


@every_kind
async def test_a_failure_midway_is_the_last_event(kind: ProviderType) -> None:
    half = recorded(kind)[: len(recorded(kind)) // 2]
    async with (
        upstream(kind, Answer([half, Act.DROP], headers=EVENT_STREAM)) as remote,
        remote.opened() as stream,
    ):
        events = [event async for event in stream]
    assert isinstance(events[-1], Failed)
    assert isinstance(events[-1].error, Truncated)
    assert not any(isinstance(event, Finished) for event in events)
