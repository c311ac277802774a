"""AWS providers behind the catalog: retries, idle limits, long text, and the audio's format as it was asked for."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import Any

import pytest

from adapters import build
from gateway.catalog import Gateway
from gateway.completion import collect
from gateway.config import ProviderType, Settings
from gateway.errors import RateLimited, UpstreamTimeout
from gateway.events import AudioFormat, AudioStart, Failed, Finished
from gateway.request import ChatRequest, Role, SpeechRequest, text_message
from tests.aws.account import BODIES, OPENINGS, answer, audio_of, row
from tests.upstreams.aws_fake import PCM, SENTENCE, audio, refusal
from tests.upstreams.byte_server import ByteServer, serving

MESSAGES = (text_message(Role.USER, "안녕?"),)
chats = pytest.mark.parametrize("kind", ["bedrock", "sagemaker"])


def gateway(kind: ProviderType, server: ByteServer, **more: Any) -> Gateway:
    model = {"id": "it", "provider": kind, "upstream": "neural" if kind == "polly" else "endpoint"}
    speech = {"kind": "speech", "voice": "Seoyeon"} if kind == "polly" else {}
    return Gateway(Settings(providers=(row(kind, server.url, **more),), models=(model | speech,)), build)


@chats
async def test_an_overloaded_moment_is_tried_again(kind: ProviderType) -> None:
    busy = refusal(503, "ServiceUnavailableException", {"message": "busy"})
    async with (
        serving(busy, answer(kind, *BODIES[kind])) as server,
        aclosing(gateway(kind, server)) as house,
        house.chat(ChatRequest("it", MESSAGES), wire="test") as events,
    ):
        completion = await collect(events)
    assert (completion.text, completion.model, len(server.requests)) == (SENTENCE, "it", 2)


@chats
async def test_a_limit_that_lasts_longer_is_passed_on(kind: ProviderType) -> None:
    limited = refusal(429, "ThrottlingException", {"message": "slow down"}, retry_after="30")
    async with serving(limited) as server, aclosing(gateway(kind, server, retries=3)) as house:
        with pytest.raises(RateLimited) as raised:
            async with house.chat(ChatRequest("it", MESSAGES), wire="test"):
                pass
    assert raised.value.retry_after == 30
    assert len(server.requests) == 1


@chats
async def test_silence_is_bounded_and_closes_the_upstream(kind: ProviderType) -> None:
    never = asyncio.Event()
    script = answer(kind, OPENINGS[kind], never)
    async with serving(script) as server, aclosing(gateway(kind, server, idle_seconds=0.05)) as house:
        async with house.chat(ChatRequest("it", MESSAGES), wire="test") as events:
            seen = [event async for event in events]
        await server.until(lambda: not server.connections)
    assert isinstance(seen[-1], Failed)
    assert isinstance(seen[-1].error, UpstreamTimeout)


async def test_long_text_is_cut_to_what_polly_takes_and_heard_as_one_stream() -> None:
    text = "가나다라마바사 " * 625 + "끝. " + "짧은 문장입니다. " * 500
    async with serving(audio(PCM)) as server, aclosing(gateway("polly", server)) as house:
        request = SpeechRequest("it", text, format=AudioFormat(rate=24_000))
        async with house.speech(request, wire="test") as events:
            seen = [event async for event in events]
    asked = [json.loads(received.body) for received in server.requests]
    assert all(0 < len(body["Text"]) <= 3000 for body in asked)
    assert {body["VoiceId"] for body in asked} == {"Seoyeon"}
    assert "".join("".join(body["Text"] for body in asked).split()) == "".join(text.split())
    assert [event for event in seen if isinstance(event, AudioStart)] == [AudioStart(AudioFormat(rate=24_000))]
    assert len(audio_of(seen)) == pytest.approx(len(asked) * len(PCM) * 1.5, rel=0.1)
    assert isinstance(seen[-1], Finished)
