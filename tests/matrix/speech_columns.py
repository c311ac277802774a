"""The columns of voices: the vendors' fakes, the scripted hum and the embedded voice."""

from __future__ import annotations

import difflib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from adapters.scripted import ScriptedSpeech
from gateway.config import ProviderRow, Settings
from gateway.events import AudioDelta, AudioEvent, AudioFormat, AudioStart
from gateway.request import SpeechRequest
from tests.contract.scenario import Refusal
from tests.contract.speech_entry import SPEECH_ENTRIES, SpeechEntry, audio
from tests.matrix.column import BEHAVIOURS, CANCEL, CUT, FIRST, TEXT, Column
from tests.matrix.columns import REFUSALS, model_rows, plain, upstream
from tests.matrix.scripts import script, seen_by
from tests.running import Service
from tests.sounds import render
from tests.test_embedded_service import transcript, words
from tests.upstreams.byte_server import Act, ByteServer

PCM = bytes(range(256)) * 60
HALF = PCM[: len(PCM) // 2]
ANSWERS = {TEXT: audio((PCM,)), CANCEL: audio((HALF, Act.HANG)), CUT: audio((HALF, Act.DROP))}
NO_FRAME = {"m": "audio has no frame for an error: a voice that fails breaks off, which is `x`"}
NO_END = {"x": "a script of speech has no end that could be missing"}
OWN_PROCESS = "the voice runs in the service's own process, where nothing breaks off"
SENTENCE = "Please remember to water the plants before you leave the house tomorrow."
PROMPTS = {
    ("embedded", TEXT): SENTENCE,
    ("embedded", FIRST): "안녕하세요",  # which the embedded voice cannot speak
    ("embedded", CANCEL): "This is a long text, and it goes on for quite a while. " * 60,
}


@asynccontextmanager
async def voices(folder: Path) -> AsyncIterator[list[Column]]:
    """Every voice; the scripted one says what is in `folder`, as the scripted chat does."""
    async with AsyncExitStack() as stack:
        own = [await _scripted(folder), _embedded()]
        yield [*own, *[await _fake(stack, entry) for entry in SPEECH_ENTRIES if entry.over_http]]


async def _scripted(folder: Path) -> Column:
    voice = ScriptedSpeech(ProviderRow(name="script", type="scripted", path=script(folder)), Settings())
    hum = [event async for event in voice.synthesize(SpeechRequest(TEXT, "")) if isinstance(event, AudioDelta)]
    column = _of_our_own("scripted", b"".join(event.data for event in hum), NO_END)
    for behaviour in BEHAVIOURS:
        column.models += model_rows(f"scripted-voice-{behaviour}", "script", behaviour, "speech")
    return column


def _embedded() -> Column:
    column = _of_our_own("embedded", None, dict.fromkeys("mx", OWN_PROCESS))
    column.status, column.check = 400, _says_it
    for behaviour in BEHAVIOURS:
        column.models += model_rows(f"embedded-voice-{behaviour}", "local", "speech", "speech")
    return column


async def _says_it(pcm: bytes) -> None:
    """No two recordings are the same; what they say is."""
    said, heard = words(SENTENCE), words(await transcript(pcm, AudioFormat().rate))
    right = sum(block.size for block in difflib.SequenceMatcher(None, said, heard).get_matching_blocks())
    assert right / len(said) >= 0.9


def _of_our_own(name: str, whole: bytes | None, cannot: Mapping[str, str]) -> Column:
    """A voice in the service's process: that it was left shows in the service's figures."""
    column = Column(name, {}, kind="speech", whole=whole, half=None, usage=None, alone=True, cannot=cannot)

    async def join(service: Service) -> None:
        for behaviour in BEHAVIOURS:
            seen = seen_by(service, f"{name}-voice-{behaviour}")
            column.upstreams[behaviour] = replace(seen, prompt=PROMPTS.get((name, behaviour), seen.prompt))

    column.join = join
    return column


async def _fake(stack: AsyncExitStack, entry: SpeechEntry) -> Column:
    whole = await _rendered(entry.rate)
    column = Column(entry.name, {}, kind="speech", whole=whole, half=None, usage=None, cannot=NO_FRAME)
    for behaviour in ANSWERS.keys() | {FIRST}:
        answers = [entry.refused(Refusal(429))] * REFUSALS if behaviour == FIRST else [ANSWERS[behaviour]]
        server = await stack.enter_async_context(ByteServer({"*": answers}))
        name = f"{entry.name}-voice-{behaviour}"
        column.rows.append(plain(entry.row(server.url), name))
        column.models += model_rows(name, name, entry.model, "speech")
        column.upstreams[behaviour] = upstream(server, name)
    return column


async def _rendered(rate: int) -> bytes:
    """What clients are given of the fakes' audio, which is at another rate than theirs."""

    async def source() -> AsyncGenerator[AudioEvent, None]:
        yield AudioStart(AudioFormat(rate=rate))
        yield AudioDelta(PCM)

    return b"".join([event.data async for event in render(source(), AudioFormat()) if isinstance(event, AudioDelta)])
