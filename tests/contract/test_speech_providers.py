"""What every voice owes: its audio whole and under its true rate, a clear refusal, and its upstream let go at once."""

from __future__ import annotations

import asyncio
import gzip
import logging
import socket
import threading
import traceback
from contextlib import aclosing
from dataclasses import dataclass, field, replace

import pytest

from gateway.errors import GatewayError
from gateway.events import AudioDelta, AudioEvent, AudioFormat, AudioStart
from gateway.ports import SpeechProvider
from gateway.request import SpeechRequest
from tests.contract.entry import CANARY, STATUSES
from tests.contract.reading import SOON
from tests.contract.scenario import Refusal
from tests.contract.speech_entry import PCM, SPEECH_ENTRIES, SpeechEntry, audio
from tests.upstreams.byte_server import Act, Answer, ByteServer, Framing
from tests.upstreams.certificates import self_signed

every = pytest.mark.parametrize("entry", SPEECH_ENTRIES, ids=lambda entry: entry.name)
over_http = pytest.mark.parametrize(
    "entry", [entry for entry in SPEECH_ENTRIES if entry.over_http], ids=lambda entry: entry.name
)


@dataclass
class Heard:
    """What a listener got."""

    events: list[AudioEvent] = field(default_factory=list)
    error: GatewayError | None = None

    @property
    def pcm(self) -> bytes:
        return b"".join(event.data for event in self.events if isinstance(event, AudioDelta))


async def heard(provider: SpeechProvider, entry: SpeechEntry) -> Heard:
    got = Heard()
    try:
        async with aclosing(provider.synthesize(SpeechRequest(entry.model, "Hello."))) as events:
            async for event in events:
                got.events.append(event)
    except GatewayError as error:
        got.error = error
    return got


async def heard_after(entry: SpeechEntry, answer: Answer) -> Heard:
    async with entry.start(answer) as (provider, _):
        return await heard(provider, entry)


@every
@pytest.mark.parametrize("cut", [None, 1])
async def test_audio_is_whole_and_under_its_true_rate(entry: SpeechEntry, cut: int | None) -> None:
    got = await heard_after(entry, audio(cut=cut))
    assert got.error is None
    assert got.events[0] == AudioStart(AudioFormat(rate=entry.rate))
    assert sum(isinstance(event, AudioStart) for event in got.events) == 1
    assert got.pcm == PCM if entry.over_http else len(got.pcm) > entry.rate / 10


@over_http
async def test_audio_comes_before_it_is_whole(entry: SpeechEntry) -> None:
    async with entry.start(audio((PCM, Act.HANG))) as (provider, server):
        async with aclosing(provider.synthesize(SpeechRequest(entry.model, "Hello."))) as events:
            assert isinstance(await anext(events), AudioStart)
            assert await anext(events) == AudioDelta(PCM)
        async with asyncio.timeout(SOON):
            await server.requests[0].gone.wait()


@over_http
@pytest.mark.parametrize("framing", [Framing.CHUNKED, Framing.LENGTH])
async def test_a_cut_after_any_byte_is_a_failure_that_keeps_the_audio(entry: SpeechEntry, framing: Framing) -> None:
    places = range(0, len(PCM), 1 if framing is Framing.CHUNKED else 7)
    async with entry.start(*(replace(audio(framing=framing), truncated_at=at) for at in places)) as (provider, server):
        for at in places:
            got = await heard(provider, entry)
            assert got.error is not None, f"cut after {at} bytes"
            assert got.error.status in (502, 503)
            assert PCM.startswith(got.pcm)
        assert len(server.requests) == len(places)


@over_http
async def test_leaving_before_the_first_audio_lets_the_upstream_go(entry: SpeechEntry) -> None:
    async with entry.start(audio((Act.HANG,))) as (provider, server):
        listening = asyncio.create_task(heard(provider, entry))
        await server.until(lambda: bool(server.requests))
        listening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await listening
        async with asyncio.timeout(SOON):
            await server.requests[0].gone.wait()


@every
async def test_fifty_leavings_and_fifty_endings_leave_nothing_behind(entry: SpeechEntry) -> None:
    answers = [audio(), audio((PCM, Act.HANG))] * 50
    async with entry.start(audio(), *answers) as (provider, server):
        await heard(provider, entry)
        tasks, threads = asyncio.all_tasks(), threading.active_count()
        for _ in range(50 if entry.over_http else 5):
            await heard(provider, entry)
            async with aclosing(provider.synthesize(SpeechRequest(entry.model, "Hello."))) as events:
                await anext(events)
        await provider.aclose()
        await server.without_connections()
        assert threading.active_count() <= threads
        # The openai package's own iterators are closed by the loop, each in a task that is over at once.
        async with asyncio.timeout(1):
            await asyncio.gather(*(asyncio.all_tasks() - tasks))


@over_http
@pytest.mark.parametrize("status", STATUSES)
async def test_a_refusal_has_its_status_and_no_key(
    entry: SpeechEntry, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    got = await heard_after(entry, entry.refused(Refusal(status, f"No: {CANARY}", {"retry-after": "7"})))
    assert got.events == []
    assert got.error is not None
    assert (got.error.status, got.error.provider) == (STATUSES[status], entry.name)
    assert got.error.retry_after == (7 if status == 429 else got.error.retry_after)
    assert CANARY not in "".join(traceback.format_exception(got.error)) + repr(got.error) + caplog.text


@over_http
async def test_an_upstream_that_is_not_there_is_unavailable(entry: SpeechEntry) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    for url in (f"http://127.0.0.1:{port}", "http://no-such-host.invalid"):
        error = await _refused_at(entry, url)
        assert (error.status, error.retryable) == (503, True)


@over_http
async def test_a_certificate_that_nobody_vouches_for_is_unavailable(entry: SpeechEntry) -> None:
    async with ByteServer({}, tls=self_signed()) as server:
        error = await _refused_at(entry, server.url)
    assert (error.status, error.retryable) == (503, False)


async def _refused_at(entry: SpeechEntry, url: str) -> GatewayError:
    provider = entry.build(url)
    try:
        got = await heard(provider, entry)
    finally:
        await provider.aclose()
    assert got.events == []
    assert got.error is not None
    return got.error


@over_http
async def test_a_web_page_is_not_audio(entry: SpeechEntry) -> None:
    got = await heard_after(entry, Answer((b"<title>Sign in</title>",), headers={"content-type": "text/html"}))
    assert got.events == []
    assert got.error is not None
    assert got.error.status == 502
    assert "Sign in" not in got.error.message


@over_http
async def test_compressed_audio_is_read(entry: SpeechEntry) -> None:
    got = await heard_after(entry, audio((gzip.compress(PCM),), headers={"content-encoding": "gzip"}))
    assert (got.pcm, got.error) == (PCM, None)
