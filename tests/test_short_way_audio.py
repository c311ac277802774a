"""Audio that passes from the voice to its client while the stream sleeps: every sample, in order, and the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from adapters.openai_speech import OpenAISpeech
from gateway.config import ProviderRow, Settings
from gateway.errors import UpstreamError
from gateway.events import AudioDelta, AudioEvent, AudioFormat, AudioStart, Encoding, Failed, Finished, StreamEvent
from gateway.patience import Patience
from gateway.ports import SpeechProvider
from gateway.request import SpeechRequest
from gateway.speech import synthesize
from gateway.streams import open_stream
from gateway.telemetry import Meter
from tests.sounds import Given, cut, tone
from tests.upstreams.byte_server import Act, Answer, ByteServer

SOUND = tone(1.0).tobytes()


class Ear:
    """Takes audio by the short way while it is `open`."""

    def __init__(self) -> None:
        self.open = True
        self.heard: list[tuple[str, bytes]] = []

    def ready(self) -> bool:
        return self.open

    def take(self, items: Sequence[StreamEvent]) -> None:
        for item in items:
            assert isinstance(item, AudioDelta)
            self.heard.append(("short", item.data))

    @property
    def audio(self) -> bytes:
        return b"".join(data for _, data in self.heard)

    @property
    def ways(self) -> list[str]:
        return [way for way, _ in self.heard]


async def listen(voice: SpeechProvider, ear: Ear, format: AudioFormat = AudioFormat()) -> StreamEvent:  # noqa: B008 - frozen
    """Hear `voice` to its end; gives the terminal event."""
    request = SpeechRequest("voice", "Hello.", format=format)
    meter = Meter("test", "voice", "up")
    async with (
        asyncio.timeout(10),
        open_stream(lambda: synthesize(voice, request), model="voice", meter=meter, patience=Patience()) as events,
    ):
        events.hand_to(ear)
        async for event in events:
            if isinstance(event, AudioDelta):
                ear.heard.append(("long", event.data))
            last = event
    return last


async def relayed(ear: Ear, *steps: Any, format: AudioFormat = AudioFormat()) -> StreamEvent:  # noqa: B008 - frozen
    """Hear an upstream that writes `steps`."""
    async with ByteServer({"/v1/audio/speech": Answer(steps, headers={"content-type": "audio/pcm"})}) as server:
        voice = OpenAISpeech(ProviderRow(name="up", type="openai", base_url=f"{server.url}/v1"), Settings())
        try:
            return await listen(voice, ear, format)
        finally:
            await voice.aclose()


@pytest.mark.parametrize("size", [333, 960, 4_801, 100_000])
async def test_however_an_upstream_cuts_its_audio_every_sample_arrives_in_order(size: int) -> None:
    ear = Ear()
    last = await relayed(ear, *(step for piece in cut(SOUND, [size]) for step in (piece, 0.0)))
    assert ear.audio == SOUND
    assert all(len(data) % 2 == 0 for _, data in ear.heard)
    assert isinstance(last, Finished)
    if size <= 4_801:
        assert "short" in ear.ways


@pytest.mark.parametrize(
    "format", [AudioFormat(Encoding.WAV), AudioFormat(rate=16_000), AudioFormat(Encoding.WAV, 8_000)]
)
async def test_what_has_work_done_to_it_goes_the_short_way_as_well(format: AudioFormat) -> None:
    ear = Ear()
    await relayed(ear, *(step for piece in cut(SOUND, [960]) for step in (piece, 0.001)), format=format)
    assert ear.ways.count("short") > 10
    header = 44 if format.encoding is Encoding.WAV else 0
    assert ear.audio.startswith(b"RIFF") is bool(header)
    assert abs((len(ear.audio) - header) // 2 - format.rate) <= 2


async def test_audio_that_an_encoder_is_slow_with_takes_the_long_way() -> None:
    ear = Ear()
    await relayed(
        ear, *(step for piece in cut(SOUND, [960]) for step in (piece, 0.0)), format=AudioFormat(Encoding.MP3)
    )
    assert ear.audio
    assert set(ear.ways) == {"long"}


async def test_a_client_that_does_not_read_gets_the_rest_by_the_long_way() -> None:
    ear = Ear()

    async def speaking() -> AsyncGenerator[AudioEvent, None]:
        yield AudioStart(AudioFormat())
        for number, piece in enumerate(cut(SOUND, [960])):
            ear.open = number % 10 < 5
            yield AudioDelta(piece)

    assert isinstance(await listen(Given(speaking()), ear), Finished)
    assert ear.audio == SOUND
    assert ear.ways[:10] == ["short"] * 5 + ["long"] * 5


async def test_a_voice_that_never_waits_lets_others_go_on() -> None:
    ear = Ear()
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def speaking() -> AsyncGenerator[AudioEvent, None]:
        yield AudioStart(AudioFormat())
        for _ in range(1_000):
            yield AudioDelta(bytes(960))

    counting = asyncio.create_task(count())
    await listen(Given(speaking()), ear)
    counting.cancel()
    assert ear.ways.count("short") > 990
    assert turns >= 25


@pytest.mark.parametrize("end", [Act.DROP, Act.RESET])
async def test_a_voice_that_breaks_off_is_told_after_all_that_came_before(end: Act) -> None:
    ear = Ear()
    last = await relayed(ear, *(step for piece in cut(SOUND, [960]) for step in (piece, 0.001)), 0.01, end)
    assert isinstance(last, Failed)
    assert ear.audio == SOUND
    assert "short" in ear.ways


async def test_a_fault_on_the_short_way_ends_the_stream_once() -> None:
    class Broken(Ear):
        def take(self, items: Sequence[StreamEvent]) -> None:
            if len(self.heard) > 3:
                raise UpstreamError("It broke.")
            super().take(items)

    ear = Broken()
    last = await relayed(ear, *(step for piece in cut(SOUND, [960]) for step in (piece, 0.001)), Act.HANG)
    assert isinstance(last, Failed)
    assert last.error.message == "It broke."
    assert ear.audio == SOUND[: 960 * 4]
