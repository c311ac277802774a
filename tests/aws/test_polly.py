"""Polly: what is asked, and audio out as it comes in."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import Any

import pytest

from adapters.polly import LONGEST_TEXT, VOICES, Polly, speech_body
from gateway.config import Settings
from gateway.errors import InvalidRequest, NotFound, Truncated, UpstreamError
from gateway.events import AudioDelta, AudioFormat, AudioStart
from gateway.request import SpeechRequest
from tests.aws.account import at, audio_of, boto_client, events, read_all, row
from tests.upstreams.aws_fake import PCM, audio, refusal
from tests.upstreams.byte_server import ByteServer, Framing, serving
from tests.upstreams.cutting import one_byte_each


def ask(text: str = "안녕하세요", model: str = "neural", **more: Any) -> dict[str, Any]:
    return speech_body(SpeechRequest(model, text, **more))


def test_the_request_is_what_polly_reads() -> None:
    assert ask(voice="Seoyeon") == {
        "Engine": "neural",
        "OutputFormat": "pcm",
        "SampleRate": "16000",
        "VoiceId": "Seoyeon",
        "Text": "안녕하세요",
        "TextType": "text",
    }


@pytest.mark.parametrize(("wanted", "asked"), [(8000, "8000"), (16_000, "16000"), (24_000, "16000"), (48_000, "16000")])
def test_only_rates_that_polly_has_are_asked_for(wanted: int, asked: str) -> None:
    assert ask(format=AudioFormat(rate=wanted))["SampleRate"] == asked


def test_voices() -> None:
    assert {"Seoyeon", "Jihye", "Joanna"} <= set(VOICES)
    assert ask(voice="seoyeon")["VoiceId"] == "Seoyeon"
    assert ask(options={"voice": "Jihye"})["VoiceId"] == "Jihye"
    assert ask(voice="Brian", options={"voice": "Jihye"})["VoiceId"] == "Brian"
    assert ask(voice="VoiceOf2030")["VoiceId"] == "VoiceOf2030"
    assert all(ask(model=engine)["VoiceId"] in VOICES for engine in ("standard", "neural", "long-form", "generative"))


@pytest.mark.parametrize(("voice", "named"), [("VoiceOf2030", True), ("seoyeon", False)])
async def test_a_voice_that_polly_refuses_is_named_with_those_that_there_are(voice: str, named: bool) -> None:
    said = refusal(400, "ValidationException", {"message": "1 validation error detected"})
    async with serving(said) as server, at(server, "polly") as polly:
        _, error = await read_all(events(polly, voice=voice))
    assert isinstance(error, InvalidRequest)
    assert error.param == ("voice" if named else None)
    assert ("VoiceOf2030" in error.message and "Seoyeon" in error.message) is named


def test_an_engine_that_does_not_exist_is_named_with_those_that_do() -> None:
    with pytest.raises(NotFound, match=r"'tts-1'.*generative"):
        ask(model="tts-1")


@pytest.mark.parametrize(("speed", "rate"), [(1.5, "150%"), (4.0, "200%"), (0.1, "20%")])
def test_speed_is_said_in_ssml(speed: float, rate: str) -> None:
    body = ask("a < b & c", speed=speed)
    assert body["TextType"] == "ssml"
    assert body["Text"] == f'<speak><prosody rate="{rate}">a &lt; b &amp; c</prosody></speak>'


def test_text_beyond_the_limit_is_refused_clearly() -> None:
    assert Polly(row("polly", None), Settings()).limits.characters == LONGEST_TEXT == 3000
    ask("가" * LONGEST_TEXT)
    with pytest.raises(InvalidRequest, match=r"3000 characters.*has 3001"):
        ask("가" * (LONGEST_TEXT + 1))
    with pytest.raises(InvalidRequest, match="no text"):
        ask(" \n")


@pytest.mark.parametrize("framing", [Framing.CHUNKED, Framing.LENGTH])
async def test_audio_arrives_whole_in_one_byte_pieces_and_even_deltas(framing: Framing) -> None:
    async with serving(audio(*one_byte_each(PCM), framing=framing)) as server, at(server, "polly") as polly:
        seen, error = await read_all(events(polly))
    assert error is None
    assert seen[0] == AudioStart(AudioFormat(rate=16_000))
    assert audio_of(seen) == PCM
    assert all(len(event.data) % 2 == 0 for event in seen if isinstance(event, AudioDelta))
    (request,) = server.requests
    assert request.path == "/v1/speech"
    assert json.loads(request.body)["VoiceId"] == "Joanna"
    assert "/us-east-1/polly/aws4_request" in request.headers["authorization"]


async def test_the_first_audio_is_out_before_the_last_is_in() -> None:
    rest = asyncio.Event()
    async with (
        serving(audio(PCM[:3], rest, PCM[3:])) as server,
        at(server, "polly") as polly,
        aclosing(events(polly)) as source,
    ):
        assert isinstance(await anext(source), AudioStart)
        assert await anext(source) == AudioDelta(PCM[:2])
        rest.set()
        remaining = [event async for event in source]
    assert audio_of(remaining) == PCM[2:]


async def test_aws_own_client_reads_the_fake_and_hears_the_same() -> None:
    async with serving(audio(PCM[:5], PCM[5:])) as server, at(server, "polly") as polly:
        seen, _ = await read_all(events(polly, voice="Seoyeon"))
        theirs = await asyncio.to_thread(ask_with_boto, server)
    assert theirs == audio_of(seen) == PCM
    ours, boto = server.requests
    assert json.loads(ours.body).items() >= json.loads(boto.body).items()
    assert ours.path == boto.path


def ask_with_boto(server: ByteServer) -> bytes:
    client = boto_client("polly", server)
    answer = client.synthesize_speech(
        Text="안녕?", VoiceId="Seoyeon", OutputFormat="pcm", SampleRate="16000", Engine="neural"
    )
    data: bytes = answer["AudioStream"].read()
    client.close()
    return data


@pytest.mark.parametrize("steps", [[], [b"\0"], [PCM, b"\0"]])
async def test_no_audio_or_half_a_sample_is_not_a_whole_answer(steps: list[bytes]) -> None:
    async with serving(audio(*steps)) as server, at(server, "polly") as polly:
        _, error = await read_all(events(polly))
    assert isinstance(error, Truncated)


async def test_a_body_whose_end_could_not_be_told_is_refused() -> None:
    async with serving(audio(PCM, framing=Framing.CLOSE)) as server, at(server, "polly") as polly:
        seen, error = await read_all(events(polly))
    assert seen == []
    assert isinstance(error, UpstreamError)
