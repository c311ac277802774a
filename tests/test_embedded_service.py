"""The service as `make serve` brings it up: the embedded model, voice and transcriber through every wire."""

from __future__ import annotations

import asyncio
import difflib
import io
import re
import threading
import time
import wave
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from adapters.local_transcription import LocalTranscription
from gateway.config import ProviderRow, Settings
from gateway.events import TextDelta
from gateway.request import TranscriptionRequest
from tests.running import Service, running
from tests.sockets import Client, Heard, socket
from tests.test_leaving import leave, wait_for

SENTENCES = (
    "The quick brown fox jumps over the lazy dog.",
    "Please remember to water the plants before you leave the house tomorrow.",
)
LONG_ANSWER = "Write a long story about a ship that sails around the world."


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("embedded")
    with running(folder, {}, environment={"TMPDIR": str(folder)}) as started:
        ask(started, "Say hello.", max_tokens=4)
        yield started


def ask(service: Service, prompt: str, **more: object) -> str:
    answer = httpx.post(f"{service.url}/generate", json={"prompt": prompt, **more}, timeout=60)
    answer.raise_for_status()
    return answer.text


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9']+", text.lower())


async def transcript(pcm: bytes, rate: int) -> str:
    transcriber = LocalTranscription(ProviderRow(name="local", type="local"), Settings())
    try:
        request = TranscriptionRequest("transcription", pcm, rate)
        return "".join([event.text async for event in transcriber.transcribe(request) if isinstance(event, TextDelta)])
    finally:
        await transcriber.aclose()


async def read_bare(client: Client) -> bytes:
    """The binary answer to one bare text: until nothing has come for a while after its first frame."""
    audio = b""
    while True:
        try:
            piece = await asyncio.wait_for(client.connection.recv(), 5.0 if not audio else 1.5)
        except TimeoutError:
            return audio
        assert isinstance(piece, bytes)
        audio += piece


def test_generate_answers_in_several_pieces_over_time(embedded: Service) -> None:
    arrivals = []
    with httpx.stream("POST", f"{embedded.url}/generate", json={"prompt": "Name three colours."}, timeout=60) as answer:
        for piece in answer.iter_raw():
            assert piece
            arrivals.append(time.monotonic())
    assert len(arrivals) > 5
    assert arrivals[-1] - arrivals[0] > 0.05


async def test_each_bare_text_is_one_wav_that_says_it(embedded: Service) -> None:
    async with socket(embedded) as client:
        for sentence in SENTENCES:
            await client.connection.send(sentence)
            audio = await read_bare(client)
            assert audio.count(b"RIFF") == 1
            with wave.open(io.BytesIO(audio)) as sound:
                pcm = sound.readframes(len(audio))
                heard = words(await transcript(pcm, sound.getframerate()))
            said = words(sentence)
            right = sum(block.size for block in difflib.SequenceMatcher(None, said, heard).get_matching_blocks())
            assert right / len(said) >= 0.9


async def test_a_text_the_voice_cannot_speak_is_an_error_not_silence(embedded: Service) -> None:
    async with socket(embedded) as client:
        for text in ("안녕하세요", "😀😀", "   "):
            heard = await client.ask(type="speak", text=text)
            assert (heard.last["type"], heard.last["code"]) == ("error", "unsupported")
            assert heard.audio == b""
            await client.connection.send(text)
            bare = await client.hear()
            assert bare.last["code"] == "unsupported"


async def test_a_spoken_chat_is_heard_before_the_model_has_finished(embedded: Service) -> None:
    async with socket(embedded) as client:
        await client.say(type="chat", text=LONG_ANSWER, speak=True, format="pcm", max_tokens=120)
        heard = Heard()
        text_after_audio = 0
        while not heard.messages or heard.kinds[-1] not in ("finished", "error"):
            before = len(heard.messages)
            await client.hear_one(heard)
            if heard.audio and len(heard.messages) > before and heard.kinds[-1] == "text":
                text_after_audio += 1
        assert heard.kinds[-1] == "finished"
        assert text_after_audio > 5
        timings = heard.last["timings"]
        assert timings["ttft_ms"] < timings["ttfa_ms"] < timings["total_ms"]


def test_what_the_small_model_cannot_do_is_refused(embedded: Service) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    image = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
    for body in (
        {"messages": [{"role": "user", "content": "hi"}], "tools": [tool]},
        {"messages": [{"role": "user", "content": image}]},
    ):
        answer = httpx.post(f"{embedded.url}/v1/chat/completions", json={"model": "default", **body})
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "unsupported"


@pytest.mark.parametrize("path", ["/generate", "/v1/chat/completions"])
def test_leaving_stops_the_embedded_model(embedded: Service, path: str) -> None:
    """After the client has gone the only slot's worth of work is over: a short answer is not kept waiting."""
    for _ in range(4):
        leave(embedded, path, "default", after=None)
    left = time.monotonic()
    wait_for(lambda: embedded.metric("polywire_streams_open") == 0)
    assert time.monotonic() - left < 0.5


def test_ready_answers_at_once_while_eight_chats_and_eight_voices_work(embedded: Service) -> None:
    stop = threading.Event()

    def chat(_: int) -> None:
        ask(embedded, LONG_ANSWER, max_tokens=40)

    def speak(_: int) -> int:
        async def one() -> int:
            async with socket(embedded) as client:
                return len((await client.ask(type="speak", text=" ".join(SENTENCES) * 3)).audio)

        return asyncio.run(one())

    slowest: list[float] = []

    def poll() -> None:
        while not stop.is_set():
            began = time.monotonic()
            embedded.get("/readyz")
            slowest.append(time.monotonic() - began)
            stop.wait(0.05)

    with ThreadPoolExecutor(17) as pool:
        polling = pool.submit(poll)
        jobs: list[Future[Any]] = [pool.submit(work, n) for n in range(8) for work in (chat, speak)]
        try:
            for job in jobs:
                job.result()
        finally:
            stop.set()
        polling.result()
    slowest.sort()
    assert len(slowest) > 10
    # One poll in twenty may be late on a shared machine with two cores.
    assert slowest[int(len(slowest) * 0.95)] < 0.1
