"""Audio in every format: whole samples, true rates, one header, no click, early."""

import asyncio
import io
import wave
from collections.abc import AsyncGenerator
from contextlib import aclosing

import numpy as np
import pytest

from gateway.audio import LARGEST_DELTA, Renderer, content_type
from gateway.errors import InvalidRequest, Unsupported, UpstreamError
from gateway.events import AudioDelta, AudioEvent, AudioFormat, AudioStart, Encoding
from gateway.wav import wav_header
from tests.sounds import Samples, cut, decoded, heard, largest_step, render, tone, voice

RATES = [8_000, 16_000, 22_050, 24_000, 44_100, 48_000]
ODD = [3, 5, 1, 7]


async def rendered(pieces: list[bytes], wanted: AudioFormat, rate: int = 24_000) -> tuple[AudioFormat, list[bytes]]:
    return await heard(render(voice(pieces, rate), wanted))


def pcm_of(deltas: list[bytes]) -> Samples:
    return np.frombuffer(b"".join(deltas), dtype="<i2")


async def test_odd_pieces_arrive_whole_and_the_odd_tail_is_dropped_and_counted() -> None:
    data = bytes(range(16))
    renderer = Renderer(AudioFormat())
    deltas = []
    async for event in _fed(renderer, [*cut(data, ODD), b"\x01"]):
        if isinstance(event, AudioDelta):
            deltas.append(event.data)
    assert b"".join(deltas) == data
    assert all(len(delta) % 2 == 0 for delta in deltas)
    assert renderer.dropped == 1


async def test_an_odd_tail_is_not_glued_to_the_next_stretch_of_audio() -> None:
    async def two() -> AsyncGenerator[AudioEvent, None]:
        for _ in range(2):
            yield AudioStart(AudioFormat())
            yield AudioDelta(b"\x01\x02\x03")

    _, deltas = await heard(render(two(), AudioFormat()))
    assert b"".join(deltas) == b"\x01\x02\x01\x02"


@pytest.mark.parametrize("sizes", [ODD, [1], [4_801], [10_000_000]])
async def test_pcm_passes_unchanged_in_small_even_deltas(sizes: list[int]) -> None:
    data = tone(1.5).tobytes()
    format, deltas = await rendered(cut(data, sizes), AudioFormat())
    assert format == AudioFormat()
    assert b"".join(deltas) == data
    assert all(len(delta) % 2 == 0 and len(delta) <= LARGEST_DELTA for delta in deltas)
    assert len(deltas) <= 1.5 / 0.02 + 1


async def test_a_long_delta_is_cut_so_that_playback_starts_early() -> None:
    _, deltas = await rendered([tone(10.0).tobytes()], AudioFormat())
    assert max(map(len, deltas)) == 24_000 * 2 * 0.2


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("voice_rate", [16_000, 22_050, 24_000])
async def test_resampling_keeps_the_duration_and_makes_no_click(rate: int, voice_rate: int) -> None:
    source = tone(1.0, voice_rate)
    format, deltas = await rendered(cut(source.tobytes(), [777]), AudioFormat(rate=rate), voice_rate)
    samples = pcm_of(deltas)
    assert format.rate == rate
    assert abs(len(samples) - rate) <= 1
    assert largest_step(samples[200:-200]) <= largest_step(tone(1.0, rate)) * 1.02


async def test_a_voice_that_changes_its_rate_gives_one_stream_at_the_asked_rate() -> None:
    async def two_rates() -> AsyncGenerator[AudioEvent, None]:
        for rate in (22_050, 16_000, 24_000):
            yield AudioStart(AudioFormat(rate=rate))
            for piece in cut(tone(0.5, rate).tobytes(), [999]):
                yield AudioDelta(piece)

    _, deltas = await heard(render(two_rates(), AudioFormat(Encoding.WAV, 24_000)))
    data = b"".join(deltas)
    assert data.count(b"RIFF") == 1
    assert abs(len(data) - 44 - 2 * 36_000) <= 8


async def test_wav_has_one_header_and_is_read_whole_by_wave_and_ffmpeg() -> None:
    source = tone(1.0)
    _, deltas = await rendered(cut(source.tobytes(), [1001]), AudioFormat(Encoding.WAV))
    data = b"".join(deltas)
    assert data.startswith(wav_header(AudioFormat()))
    assert data.count(b"RIFF") == 1
    with wave.open(io.BytesIO(data)) as reader:
        assert (reader.getframerate(), reader.getnchannels(), reader.getsampwidth()) == (24_000, 1, 2)
        assert reader.readframes(10_000_000) == source.tobytes()
    rate, samples = decoded(data)
    assert rate == 24_000
    assert np.array_equal(samples, source)


def test_wav_sizes_say_unknown() -> None:
    header = wav_header(AudioFormat(rate=8_000))
    assert len(header) == 44
    assert header[4:8] == header[40:44] == b"\xff\xff\xff\xff"
    assert header[24:32] == (8_000).to_bytes(4, "little") + (16_000).to_bytes(4, "little")


SIGNATURES = {
    Encoding.MP3: (b"\xff\xf3", b"ID3", b"\xff\xfb"),
    Encoding.OPUS: (b"OggS",),
    Encoding.FLAC: (b"fLaC",),
    Encoding.AAC: (b"\xff\xf1",),
    Encoding.WAV: (b"RIFF",),
}


@pytest.mark.parametrize("encoding", SIGNATURES)
@pytest.mark.parametrize("rate", [16_000, 24_000, 48_000])
async def test_an_encoding_keeps_every_sample_but_for_its_own_padding(encoding: Encoding, rate: int) -> None:
    source = tone(1.0, 24_000)
    format, deltas = await rendered(cut(source.tobytes(), [1_999]), AudioFormat(encoding, rate))
    data = b"".join(deltas)
    assert data.startswith(SIGNATURES[encoding])
    true_rate, samples = decoded(data)
    assert format == AudioFormat(encoding, 48_000 if encoding is Encoding.OPUS else rate)
    assert true_rate == format.rate
    padding = {Encoding.MP3: 3 * 1_152, Encoding.AAC: 3 * 1_024}.get(encoding, 1)
    assert -1 <= len(samples) - true_rate <= padding
    assert abs(int(np.abs(samples).max()) - 8_000) < 1_500


@pytest.mark.parametrize("encoding", [Encoding.MP3, Encoding.OPUS, Encoding.AAC, Encoding.FLAC])
async def test_encoded_bytes_come_while_the_voice_still_speaks(encoding: Encoding) -> None:
    stop = asyncio.Event()

    async def endless() -> AsyncGenerator[AudioEvent, None]:
        yield AudioStart(AudioFormat())
        for piece in cut(tone(1.0).tobytes(), [4_800]):
            yield AudioDelta(piece)
        await stop.wait()

    received = 0
    async with aclosing(render(endless(), AudioFormat(encoding))) as events:
        assert isinstance(await anext(events), AudioStart)
        while received < 3_000:
            event = await asyncio.wait_for(anext(events), 5)
            assert isinstance(event, AudioDelta)
            received += len(event.data)


async def test_leaving_early_closes_the_voice() -> None:
    closed = asyncio.Event()

    async def endless() -> AsyncGenerator[AudioEvent, None]:
        try:
            yield AudioStart(AudioFormat())
            while True:
                yield AudioDelta(bytes(9_600))
        finally:
            closed.set()

    async with aclosing(render(endless(), AudioFormat(Encoding.MP3))) as events:
        for _ in range(3):
            await anext(events)
    assert closed.is_set()


async def test_the_event_loop_runs_on_while_mp3_is_made() -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.001)
            ticks += 1

    ticking = asyncio.create_task(tick())
    await rendered([tone(10.0).tobytes()], AudioFormat(Encoding.MP3))
    ticking.cancel()
    assert ticks >= 10


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (AudioFormat(Encoding.MP3, 12_345), "mp3.*12345.*24000"),
        (AudioFormat(Encoding.AAC, 50_000), "aac.*50000"),
        (AudioFormat(Encoding.WAV, 100), "rate of 100"),
        (AudioFormat(channels=5), "channels, not 5"),
    ],
)
async def test_a_format_that_cannot_be_made_is_refused_by_name(wanted: AudioFormat, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        await rendered([b""], wanted)


async def test_a_mono_voice_is_not_sold_as_stereo() -> None:
    with pytest.raises(Unsupported, match="1 channels; 2"):
        await rendered([b"\0\0"], AudioFormat(channels=2))


async def test_a_voice_that_does_not_give_pcm_is_named() -> None:
    async def mp3() -> AsyncGenerator[AudioEvent, None]:
        yield AudioStart(AudioFormat(Encoding.MP3))

    with pytest.raises(UpstreamError, match="gives mp3"):
        await heard(render(mp3(), AudioFormat()))


async def test_audio_before_its_format_is_a_fault_of_the_voice() -> None:
    async def headless() -> AsyncGenerator[AudioEvent, None]:
        yield AudioDelta(b"\0\0")

    with pytest.raises(UpstreamError, match="before it said its format"):
        await anext(render(headless(), AudioFormat()))


async def test_a_voice_without_a_sample_still_makes_a_wav() -> None:
    _, deltas = await rendered([], AudioFormat(Encoding.WAV))
    assert b"".join(deltas) == wav_header(AudioFormat())


def test_every_encoding_has_its_content_type() -> None:
    types = {encoding: content_type(encoding) for encoding in Encoding}
    assert types[Encoding.MP3] == "audio/mpeg"
    assert len(set(types.values())) == len(Encoding)


async def _fed(renderer: Renderer, pieces: list[bytes]) -> AsyncGenerator[AudioEvent, None]:
    async for event in voice(pieces):
        async for delta in renderer.feed(event):
            yield delta
    async for delta in renderer.close():
        yield delta
