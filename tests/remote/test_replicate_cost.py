"""A prediction costs money: it is made once, and cancelled whenever nobody reads it any more."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from gateway.errors import GatewayError
from tests.remote.upstreams import Upstream, chat, provider_for
from tests.upstreams.byte_server import Act, Answer, Framing, json_answer
from tests.upstreams.replicate_fake import ID, event_stream, output, replicate_fake

SILENT = event_stream(output(0, "a"), Act.HANG)


async def test_leaving_while_a_prediction_is_created_cancels_it_once_it_has_an_id() -> None:
    created = asyncio.Event()
    create = replace(json_answer({"id": ID, "status": "starting", "urls": {}}, 201), after=created)
    async with replicate_fake(SILENT, create=create) as fake:
        provider = provider_for("replicate", fake.server.url)
        reader = asyncio.create_task(anext(provider.stream(chat())))
        await fake.server.wait_for("POST", "/predictions")
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        assert fake.cancels == []
        created.set()
        cancel = await fake.server.wait_for("POST", "/cancel")
        assert cancel.path == f"/v1/predictions/{ID}/cancel"
        await provider.aclose()


async def test_leaving_while_a_refusal_is_on_its_way_cancels_nothing(caplog: pytest.LogCaptureFixture) -> None:
    refused = asyncio.Event()
    create = replace(json_answer({"detail": "no"}, 422), after=refused)
    async with replicate_fake(SILENT, create=create) as fake:
        provider = provider_for("replicate", fake.server.url)
        reader = asyncio.create_task(anext(provider.stream(chat())))
        await fake.server.wait_for("POST", "/predictions")
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        refused.set()
        await provider.aclose()
        assert fake.cancels == []
    assert caplog.records == []


async def test_leaving_a_prediction_that_is_polled_cancels_it() -> None:
    polls = [{"status": "processing", "output": ["a"]}]
    async with replicate_fake(stream_url=None, polls=polls) as fake:
        provider = provider_for("replicate", fake.server.url)
        events = provider.stream(chat())
        await anext(events)
        await events.aclose()
        await fake.server.wait_for("POST", "/cancel")
        await provider.aclose()


async def test_a_prediction_that_has_gone_needs_no_cancellation(caplog: pytest.LogCaptureFixture) -> None:
    async with replicate_fake(SILENT, cancel=lambda: json_answer({"detail": "not found"}, 404)) as fake:
        provider = provider_for("replicate", fake.server.url)
        events = provider.stream(chat())
        await anext(events)
        await events.aclose()
        await provider.aclose()
        assert len(fake.cancels) == 1
    assert caplog.records == []


async def test_closing_waits_for_the_cancellation() -> None:
    async with replicate_fake(SILENT) as fake:
        provider = provider_for("replicate", fake.server.url)
        events = provider.stream(chat())
        await anext(events)
        await events.aclose()
        await provider.aclose()
        assert len(fake.cancels) == 1


async def test_a_refused_cancellation_is_tried_again() -> None:
    answers = [json_answer({}, 503), json_answer({}, 500), json_answer({"id": ID, "status": "canceled"})]
    async with replicate_fake(SILENT, cancel=lambda: answers.pop(0)) as fake:
        provider = provider_for("replicate", fake.server.url)
        events = provider.stream(chat())
        await anext(events)
        await events.aclose()
        await provider.aclose()
    assert answers == []


@pytest.mark.parametrize("answer", [json_answer({}, 500), Answer(before_head=Act.HANG)])
async def test_a_lost_cancellation_is_logged_and_does_not_hold_up_the_end(
    answer: Answer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.cancelling.PAUSES", (0.0, 0.0))
    monkeypatch.setattr("adapters.cancelling.CLOSE_SECONDS", 0.2)
    caplog.set_level(logging.ERROR)
    async with replicate_fake(SILENT, cancel=lambda: answer) as fake:
        provider = provider_for("replicate", fake.server.url)
        events = provider.stream(chat())
        await anext(events)
        await events.aclose()
        async with asyncio.timeout(1):
            await provider.aclose()
    (record,) = caplog.records
    assert ID in record.getMessage()
    assert "could not be cancelled" in record.getMessage()


async def test_closing_gives_up_a_prediction_that_is_still_being_created(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.cancelling.CLOSE_SECONDS", 0.05)
    before = asyncio.all_tasks()
    async with replicate_fake(SILENT, create=Answer(before_head=Act.HANG)) as fake:
        provider = provider_for("replicate", fake.server.url)
        reader = asyncio.create_task(anext(provider.stream(chat())))
        request = await fake.server.wait_for("POST", "/predictions")
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        await provider.aclose()
        async with asyncio.timeout(1):
            await request.gone.wait()
    assert "could not be cancelled" in caplog.text
    assert asyncio.all_tasks() - before == set()


@pytest.mark.parametrize(
    ("create", "times"),
    [
        (Answer(before_head=Act.RESET), 1),
        (json_answer({"detail": "overloaded"}, 503), 1),
        (json_answer({"detail": "later"}, 429, retry_after="0"), 3),
    ],
)
async def test_only_a_throttled_create_is_repeated(create: Answer, times: int) -> None:
    async with replicate_fake(SILENT, create=create) as fake:
        provider = provider_for("replicate", fake.server.url)
        with pytest.raises(GatewayError):
            async with Upstream("replicate", provider, fake.server).opened(retries=2):
                pass
        await provider.aclose()
        assert len(fake.server.received("POST", "/predictions")) == times


@pytest.mark.parametrize("stream_url", [None, "{base}/v1/streams/x"])
async def test_a_prediction_that_fails_before_its_first_token_is_not_made_again(stream_url: str | None) -> None:
    async with replicate_fake(event_stream(framing=Framing.CLOSE), stream_url=stream_url) as fake:
        answer = fake.answer
        fake.server.routes["*"] = lambda request: (
            json_answer({}, 503) if request.method == "GET" and ID in request.path else answer(request)
        )
        provider = provider_for("replicate", fake.server.url)
        with pytest.raises(GatewayError) as caught:
            async with Upstream("replicate", provider, fake.server).opened(retries=2):
                pass
        await provider.aclose()
        assert len(fake.server.received("POST", "llama/predictions")) == 1
        assert len(fake.cancels) == 1
    assert not caught.value.retryable
