"""Speech and transcription through `openai` rows: PCM as it arrives and under its true rate, transcripts whole."""

from __future__ import annotations

import asyncio
import io
import json
import traceback
import wave
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from adapters.http import LONGEST_BODY
from adapters.openai_speech import OpenAISpeech
from adapters.openai_transcription import OpenAITranscription
from gateway.config import ProviderRow, Settings
from gateway.errors import GatewayError, Truncated, UpstreamError
from gateway.events import (
    AudioDelta,
    AudioEvent,
    AudioFormat,
    AudioStart,
    Finished,
    FinishReason,
    TextDelta,
    Usage,
)
from gateway.request import SpeechRequest, TranscriptionRequest
from tests.upstreams.byte_server import (
    Act,
    Answer,
    ByteServer,
    Framing,
    Route,
    Step,
    json_answer,
)

SPEECH, TRANSCRIPTION = "/v1/audio/speech", "/v1/audio/transcriptions"
PCM = bytes(range(256)) * 20
CANARY = "sk-canary-0123456789"
SPOKEN = SpeechRequest("tts", "Hello.")
HEARD = TranscriptionRequest("stt", PCM, 16_000)


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUDIO_KEY", CANARY)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-of-somebody-else")


def row(url: str) -> ProviderRow:
    return ProviderRow(name="voice", type="openai", base_url=f"{url}/v1", api_key_env="AUDIO_KEY")


def audio(*steps: Step, content_type: str = "audio/pcm", **more: Any) -> Answer:
    return Answer(steps, headers={"content-type": content_type}, **more)


def sse(*events: Mapping[str, Any], **more: Any) -> Answer:
    return Answer([b"data: " + json.dumps(event).encode() + b"\n\n" for event in events], **more)


@asynccontextmanager
async def speaking(route: Route) -> AsyncIterator[tuple[OpenAISpeech, ByteServer]]:
    async with ByteServer({SPEECH: route}) as server:
        provider = OpenAISpeech(row(server.url), Settings())
        try:
            yield provider, server
        finally:
            await provider.aclose()


async def spoken(route: Route, request: SpeechRequest = SPOKEN) -> list[AudioEvent]:
    async with speaking(route) as (provider, _):
        return [event async for event in provider.synthesize(request)]


async def heard(route: Route, request: TranscriptionRequest = HEARD) -> list[TextDelta | Finished]:
    async with ByteServer({TRANSCRIPTION: route}) as server:
        provider = OpenAITranscription(row(server.url), Settings())
        try:
            return [event async for event in provider.transcribe(request)]
        finally:
            await provider.aclose()


def joined(events: list[AudioEvent]) -> bytes:
    return b"".join(event.data for event in events if isinstance(event, AudioDelta))


@pytest.mark.parametrize("cut", [None, 7])
async def test_speech_is_whole_and_begins_with_its_rate(cut: int | None) -> None:
    events = await spoken(audio(PCM[:100], PCM[100:], cut=cut))
    assert events[0] == AudioStart(AudioFormat(rate=24_000))
    assert joined(events) == PCM


async def test_speech_arrives_before_it_is_whole() -> None:
    async with speaking(audio(PCM, Act.HANG)) as (provider, server):
        async with aclosing(provider.synthesize(SPOKEN)) as events:
            assert await anext(events) == AudioStart(AudioFormat(rate=24_000))
            assert await anext(events) == AudioDelta(PCM)
        async with asyncio.timeout(0.1):
            await server.requests[0].gone.wait()


async def test_a_declared_rate_is_the_rate() -> None:
    events = await spoken(audio(PCM, content_type="audio/pcm;rate=16000;channels=1"))
    assert events[0] == AudioStart(AudioFormat(rate=16_000))


async def test_a_speech_request_says_what_is_wanted() -> None:
    async with speaking(audio(PCM)) as (provider, server):
        whole = SpeechRequest("tts", "안녕 👋", voice="nova", speed=1.5, instructions="Whisper.")
        for request in (SPOKEN, whole):
            assert [event async for event in provider.synthesize(request)]
        bodies = [json.loads(request.body) for request in server.requests]
        keys = {request.headers["authorization"] for request in server.requests}
    assert bodies[0] == {"model": "tts", "input": "Hello.", "voice": "alloy", "response_format": "pcm"}
    assert bodies[1] == {
        "model": "tts",
        "input": "안녕 👋",
        "voice": "nova",
        "response_format": "pcm",
        "speed": 1.5,
        "instructions": "Whisper.",
    }
    assert keys == {f"Bearer {CANARY}"}


@pytest.mark.parametrize(
    ("content_type", "data"),
    [
        ("audio/mpeg", b"\xff\xfb\x90"),
        ("application/octet-stream", b"ID3\x04"),
        ("application/octet-stream", b"RIFF\0\0\0\0WAVE"),
        ("text/html", b"<!doctype html>"),
        ("application/json", b'{"status":"queued"}'),
    ],
)
@pytest.mark.parametrize("cut", [None, 1])
async def test_what_is_not_pcm_is_never_passed_on_as_pcm(content_type: str, data: bytes, cut: int | None) -> None:
    with pytest.raises(UpstreamError, match="asked for PCM"):
        await spoken(audio(data, content_type=content_type, cut=cut))


async def test_an_answer_without_audio_is_an_error() -> None:
    with pytest.raises(UpstreamError, match="without any audio"):
        await spoken(audio())


@pytest.mark.parametrize(
    ("status", "meant"), [(400, 400), (401, 502), (403, 502), (404, 404), (429, 429), (500, 502), (503, 503)]
)
@pytest.mark.parametrize("hear", [False, True], ids=["speech", "transcription"])
async def test_a_refusal_has_its_status_and_no_key(
    status: int, meant: int, hear: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    body = json.dumps({"error": {"message": f"No: {CANARY}", "type": "x", "code": None}}).encode()
    answer = json_answer(body, status, retry_after="7")
    with pytest.raises(GatewayError) as raised:
        await (heard(answer) if hear else spoken(answer))
    error = raised.value
    assert (error.status, error.provider) == (meant, "voice")
    assert error.retry_after == (7 if status in (429, 503) else None)
    assert CANARY not in "".join(traceback.format_exception(error)) + caplog.text


async def test_a_row_without_a_key_never_takes_one_from_the_environment() -> None:
    async with ByteServer({SPEECH: audio(PCM)}) as server:
        provider = OpenAISpeech(ProviderRow(name="v", type="openai", base_url=f"{server.url}/v1"), Settings())
        assert [event async for event in provider.synthesize(SPOKEN)]
        assert "authorization" not in server.requests[0].headers
        await provider.aclose()


DELTAS = [{"type": "transcript.text.delta", "delta": piece} for piece in ("안녕", "하세요 ", "👋🏽")]
WHOLE = {
    "type": "transcript.text.done",
    "text": "안녕하세요 👋🏽",
    "usage": {"type": "tokens", "input_tokens": 14, "output_tokens": 2, "total_tokens": 16},
}
ENDED = Finished(FinishReason.STOP, Usage(input_tokens=14, output_tokens=2))


async def test_a_streamed_transcript_comes_piece_by_piece() -> None:
    events = await heard(sse(*DELTAS, WHOLE, cut=1))
    assert events == [TextDelta("안녕"), TextDelta("하세요 "), TextDelta("👋🏽"), ENDED]


async def test_a_transcript_without_deltas_is_said_at_once() -> None:
    assert await heard(sse(WHOLE)) == [TextDelta("안녕하세요 👋🏽"), ENDED]


async def test_a_server_that_does_not_stream_answers_with_json() -> None:
    body = json.dumps({"text": "hi", "usage": {"type": "duration", "seconds": 2}}).encode()
    assert await heard(json_answer(body)) == [TextDelta("hi"), Finished(FinishReason.STOP)]


async def test_silence_is_an_empty_transcript() -> None:
    assert await heard(json_answer(b'{"text":""}')) == [Finished(FinishReason.STOP)]


@pytest.mark.parametrize("answer", [sse(*DELTAS), json_answer(b"{}"), sse(*DELTAS, framing=Framing.CLOSE)])
async def test_a_transcript_without_its_end_is_truncated(answer: Answer) -> None:
    with pytest.raises(Truncated):
        await heard(answer)


async def test_an_error_in_the_stream_is_one() -> None:
    with pytest.raises(GatewayError) as raised:
        await heard(sse(DELTAS[0], {"error": {"message": "busy", "code": "rate_limit_exceeded"}}))
    assert raised.value.status == 429


async def test_what_is_no_transcript_is_an_upstream_error() -> None:
    with pytest.raises(UpstreamError):
        await heard(Answer((b"<html>",), headers={"content-type": "text/html"}))


async def test_a_transcript_without_an_end_is_not_kept() -> None:
    endless = Answer([bytes(1024 * 1024)] * (LONGEST_BODY // 1024 // 1024 + 1), headers={"content-type": "text/json"})
    with pytest.raises(UpstreamError, match=f"more than {LONGEST_BODY} bytes"):
        await heard(endless)


async def test_the_speech_is_sent_as_one_wav_file() -> None:
    async with ByteServer({TRANSCRIPTION: sse(WHOLE)}) as server:
        provider = OpenAITranscription(row(server.url), Settings())
        request = TranscriptionRequest("stt", PCM, 16_000, language="ko", prompt="names", temperature=0)
        assert [event async for event in provider.transcribe(request)]
        [sent] = server.requests
        await provider.aclose()
    for name, value in (("model", "stt"), ("stream", "true"), ("language", "ko"), ("temperature", "0")):
        assert f'name="{name}"\r\n\r\n{value}\r\n'.encode() in sent.body
    start = sent.body.index(b"RIFF")
    with wave.open(io.BytesIO(sent.body[start:])) as wav:
        assert (wav.getframerate(), wav.getnchannels(), wav.getsampwidth()) == (16_000, 1, 2)
        assert wav.readframes(wav.getnframes()) == PCM
