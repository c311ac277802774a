"""How a speech provider takes part in `test_speech_providers.py`, and the list of those that do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from adapters import build
from gateway.config import ProviderRow, Settings
from gateway.ports import SpeechProvider
from tests.contract.aws_entries import refused as refused_by_aws
from tests.contract.entry import CANARY_ENV
from tests.contract.openai_entry import refused as refused_by_openai
from tests.contract.scenario import Refusal
from tests.upstreams.byte_server import Answer, ByteServer, Framing, Step

PCM = bytes(range(256))


@dataclass(frozen=True, slots=True)
class SpeechEntry:
    """`rate` is the true rate of the audio. `row` makes the row for a fake's URL and `refused` its error answer;
    without `over_http` the voice is this process's own and its audio is not compared."""

    name: str
    row: Callable[[str], ProviderRow]
    rate: int
    model: str = "m"
    over_http: bool = True
    refused: Callable[[Refusal], Answer] = field(default=refused_by_openai)

    @asynccontextmanager
    async def start(self, *answers: Answer) -> AsyncIterator[tuple[SpeechProvider, ByteServer]]:
        """The provider, and the fake that gives it `answers` in order."""
        async with ByteServer({"*": answers}) as server:
            provider = self.build(server.url)
            try:
                yield provider, server
            finally:
                await provider.aclose()

    def build(self, url: str) -> SpeechProvider:
        return cast(SpeechProvider, build(self.row(url), "speech", Settings()))


def audio(steps: Sequence[Step] = (PCM,), framing: Framing = Framing.CHUNKED, **more: Any) -> Answer:
    """PCM as both vendors send it."""
    return Answer(steps, headers={"content-type": "audio/pcm"} | more.pop("headers", {}), framing=framing, **more)


def _row(kind: str, **more: Any) -> Callable[[str], ProviderRow]:
    return lambda url: ProviderRow.model_validate({"name": kind, "type": kind, **_at(kind, url), **more})


def _at(kind: str, url: str) -> dict[str, str]:
    places = {"openai": {"base_url": f"{url}/v1"}, "polly": {"endpoint_url": url, "region": "us-east-1"}}
    return places.get(kind, {})


SPEECH_ENTRIES = (
    SpeechEntry("scripted", _row("scripted"), 24_000, over_http=False),
    SpeechEntry("local", _row("local"), 24_000, over_http=False),
    SpeechEntry("openai", _row("openai", api_key_env=CANARY_ENV), 24_000),
    SpeechEntry("polly", _row("polly"), 16_000, model="neural", refused=refused_by_aws),
)
