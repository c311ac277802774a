"""AWS providers behind the catalog: retries, idle limits, long text, and the audio's format as it was asked for."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import Any

import pytest

from adapters import build
from gateway.catalog import Gateway
from gateway.config import ProviderType, Settings
from gateway.events import AudioFormat, AudioStart, Finished
from gateway.request import Role, SpeechRequest, text_message
from tests.aws.account import audio_of, row
from tests.upstreams.aws_fake import PCM, audio
from tests.upstreams.byte_server import ByteServer, serving

MESSAGES = (text_message(Role.USER, "안녕?"),)


def gateway(kind: ProviderType, server: ByteServer, **more: Any) -> Gateway:
    model = {"id": "it", "provider": kind, "upstream": "neural" if kind == "polly" else "endpoint"}
    speech = {"kind": "speech", "voice": "Seoyeon"} if kind == "polly" else {}
    return Gateway(Settings(providers=(row(kind, server.url, **more),), models=(model | speech,)), build)


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
