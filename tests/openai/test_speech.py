"""Speech: bytes that are what they say, one stream whatever the text's length, and failures that nobody can miss."""

from __future__ import annotations

import base64
import io
import json
import socket
import wave

import av
import httpx
import openai
import pytest

from tests.running import Service
from tests.test_leaving import wait_for

RATE = 24_000
TEXT = "One sentence. Another one! And a third?"
MAGIC = {
    "mp3": ("audio/mpeg", (b"\xff\xf3", b"ID3")),
    "opus": ("audio/opus", (b"OggS",)),
    "aac": ("audio/aac", (b"\xff\xf1",)),
    "flac": ("audio/flac", (b"fLaC",)),
    "wav": ("audio/wav", (b"RIFF",)),
}


def say(service: Service, **body: object) -> httpx.Response:
    return httpx.post(f"{service.url}/v1/audio/speech", json={"model": "voice", "input": TEXT, **body}, timeout=30)


def decoded_seconds(data: bytes) -> float:
    seconds = 0.0
    with av.open(io.BytesIO(data), "r") as container:
        for frame in container.decode(audio=0):
            assert isinstance(frame, av.AudioFrame)
            seconds += frame.samples / frame.sample_rate
    return seconds


def samples(service: Service, **body: object) -> int:
    return len(say(service, response_format="pcm", **body).content) // 2


@pytest.mark.parametrize("name", MAGIC)
def test_the_bytes_match_the_declared_content_type(service: Service, name: str) -> None:
    """Case A5."""
    answer = say(service, response_format=name)
    kind, beginnings = MAGIC[name]
    assert answer.headers["content-type"] == kind
    assert answer.content.startswith(beginnings)
    # MP3 and AAC play their priming and padding as well.
    longer = 0.1 if name in ("mp3", "aac") else 0.001
    expected = samples(service) / RATE
    assert expected - 0.001 <= decoded_seconds(answer.content) <= expected + longer


def test_mp3_is_the_default(service: Service) -> None:
    assert say(service).headers["content-type"] == "audio/mpeg"


def test_an_unknown_format_is_refused_with_the_known_ones(service: Service) -> None:
    answer = say(service, response_format="tiff")
    assert answer.status_code == 400
    assert all(name in answer.json()["error"]["message"] for name in (*MAGIC, "pcm"))


def test_wav_has_one_header_and_every_sample(service: Service) -> None:
    """Case A1."""
    data = say(service, response_format="wav").content
    assert data.count(b"RIFF") == 1
    with wave.open(io.BytesIO(data)) as reader:
        assert (reader.getframerate(), reader.getnchannels(), reader.getsampwidth()) == (RATE, 1, 2)
        assert len(reader.readframes(10**8)) // 2 == samples(service)


def test_a_text_beyond_every_limit_is_cut_and_not_refused(service: Service) -> None:
    """Case A7: every character is heard, in one stream with one header."""
    text = "word " * 1000 + "x" * 5000
    data = say(service, input=text, response_format="wav").content
    assert data.count(b"RIFF") == 1
    heard = (len(data) - 44) / 2 / RATE / 0.06
    assert len(text) * 0.98 < heard <= len(text)


def test_speed_changes_the_length(service: Service) -> None:
    assert samples(service, speed=2.0) == pytest.approx(samples(service) / 2, rel=0.01)


@pytest.mark.parametrize("voice", ["alloy", {"id": "cedar"}, "voice", "voice/alloy", None])
def test_a_voice_may_be_named_in_every_way(service: Service, voice: object) -> None:
    assert say(service, voice=voice).status_code == 200


def test_events_hold_the_same_bytes_joined_before_or_after_decoding(service: Service) -> None:
    expected = say(service, response_format="wav").content
    answer = say(service, response_format="wav", stream_format="sse")
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    *deltas, done = [json.loads(event.removeprefix("data: ")) for event in answer.text.split("\n\n") if event]
    assert {delta["type"] for delta in deltas} == {"speech.audio.delta"}
    assert b"".join(base64.b64decode(delta["audio"], validate=True) for delta in deltas) == expected
    assert base64.b64decode("".join(delta["audio"] for delta in deltas), validate=True) == expected
    assert done["type"] == "speech.audio.done"
    assert set(done["usage"]) >= {"input_tokens", "output_tokens", "total_tokens"}


def test_the_sdk_reads_it_whole_and_in_pieces(client: openai.OpenAI) -> None:
    whole = client.audio.speech.create(model="voice", voice="alloy", input=TEXT, response_format="pcm").read()
    with client.audio.speech.with_streaming_response.create(
        model="voice", voice="alloy", input=TEXT, response_format="pcm"
    ) as answer:
        pieces = list(answer.iter_bytes())
    assert b"".join(pieces) == whole
    assert len(pieces) > 1


async def test_the_async_sdk_reads_it_in_pieces(async_client: openai.AsyncOpenAI) -> None:
    async with async_client.audio.speech.with_streaming_response.create(
        model="voice", voice="nova", input=TEXT
    ) as answer:
        assert b"".join([piece async for piece in answer.iter_bytes()]).startswith(MAGIC["mp3"][1])


def test_a_failure_before_the_first_sound_has_its_status(client: openai.OpenAI) -> None:
    with pytest.raises(openai.RateLimitError):
        client.audio.speech.create(model="voice-fails-first", voice="alloy", input=TEXT)
    with pytest.raises(openai.NotFoundError) as unknown:
        client.audio.speech.create(model="tts-1", voice="voice", input=TEXT)
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError):
        client.audio.speech.create(model="hello", voice="alloy", input=TEXT)
    with pytest.raises(openai.BadRequestError):
        client.audio.speech.create(model="voice", voice="alloy", input="😀")


@pytest.mark.parametrize("name", ["mp3", "wav", "pcm"])
def test_a_failure_midway_breaks_the_body(service: Service, name: str) -> None:
    """Case R1: a cut file must not look like a whole one."""
    received = bytearray()

    def read() -> None:
        body = {"model": "voice-fails-midway", "input": "x", "response_format": name}
        with httpx.stream("POST", f"{service.url}/v1/audio/speech", json=body) as answer:
            assert answer.status_code == 200
            for piece in answer.iter_raw():
                received.extend(piece)

    with pytest.raises(httpx.RemoteProtocolError):
        read()
    assert len(received) > 1000


def test_a_failure_midway_is_an_error_frame_among_events(service: Service) -> None:
    events = say(service, model="voice-fails-midway", stream_format="sse").text.split("\n\n")
    bodies = [json.loads(event.removeprefix("data: ")) for event in events if event]
    assert "speech.audio.delta" in {body.get("type") for body in bodies}
    assert bodies[-1]["error"]["type"] == "server_error"
    assert "speech.audio.done" not in {body.get("type") for body in bodies}


def hear(service: Service, model: str) -> socket.socket:
    """Ask for speech over a connection that buffers next to nothing."""
    body = json.dumps({"model": model, "input": "x", "response_format": "wav"}).encode()
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader.connect(("127.0.0.1", service.port))
    head = f"POST /v1/audio/speech HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    reader.sendall(head.encode() + b"\r\n\r\n" + body)
    return reader


def test_a_listener_that_stops_costs_next_to_nothing(service: Service) -> None:
    """Case P1: hours of sound, and nobody listens; hanging up then stops the voice."""
    worker = service.workers()[0]
    before = worker.memory_info().rss
    readers = [hear(service, "voice-floods") for _ in range(4)]
    try:
        wait_for(lambda: service.metric("polywire_streams_open", wire="openai") == 4, 10)
        assert service.get("/readyz") is not None
        assert worker.memory_info().rss - before < 8 * 1024 * 1024
    finally:
        for reader in readers:
            reader.close()
    wait_for(lambda: service.metric("polywire_streams_open", wire="openai") == 0)


def test_hanging_up_stops_the_voice(service: Service) -> None:
    before = service.metric("polywire_streams_total", wire="openai", outcome="cancelled")
    with hear(service, "voice-hangs") as reader:
        heard = b""
        while b"RIFF" not in heard:
            heard += reader.recv(4096)
    wait_for(lambda: service.metric("polywire_streams_total", wire="openai", outcome="cancelled") == before + 1)
