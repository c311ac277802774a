"""Answers that depend on how the service is configured, asked of the application itself."""

from __future__ import annotations

import io
import wave
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from adapters import build
from gateway.catalog import Gateway
from gateway.config import Limits, ModelRow, ProviderRow, Settings
from stores import open_store
from tests.predictions.conftest import SCRIPT
from wires import create_app

Serve = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """Serves the application with some settings to a client, without a server in between."""

    @asynccontextmanager
    async def serving(**settings: Any) -> AsyncIterator[httpx.AsyncClient]:
        rows = (ProviderRow(name="script", type="scripted", path=SCRIPT),)
        models = (
            ModelRow(id="test/hangs", provider="script", upstream="hangs"),
            ModelRow(id="test/voice", provider="script", upstream="tone", kind="speech"),
        )
        gateway = Gateway(Settings(providers=rows, models=models, **settings), build)
        app = create_app(gateway, open_store(f"sqlite:///{tmp_path / 'polywire.db'}"))
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://inside.example") as client:
                yield client

    return serving


async def speak(client: httpx.AsyncClient) -> dict[str, Any]:
    made = await client.post(
        "/v1/models/test/voice/predictions", json={"input": {"text": "Hello"}}, headers={"prefer": "wait"}
    )
    found: dict[str, Any] = made.json()
    assert found["status"] == "succeeded"
    return found


async def test_behind_tls_a_voice_gives_the_url_of_a_whole_wav_file(serve: Serve) -> None:
    async with serve(public_url="https://outside.example/") as client:
        prediction = await speak(client)
        assert prediction["output"].startswith("https://outside.example/v1/files/")
        answer = await client.get(prediction["output"].removeprefix("https://outside.example"))
        assert answer.headers["content-type"] == "audio/wav"
        with wave.open(io.BytesIO(answer.content)) as file:
            assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24_000, 1, 2)
            assert file.getnframes() == (len(answer.content) - 44) // 2 > 0
        wrong = await client.get("/v1/files/" + "a" * 52)
        assert wrong.status_code == 404
        listed = (await client.get("/v1/predictions")).json()["results"]
        assert listed[0]["output"] == prediction["output"]


async def test_urls_come_from_the_configuration_and_not_from_the_caller(serve: Serve) -> None:
    async with serve(public_url="https://outside.example") as client:
        made = await client.post(
            "/v1/models/test/hangs/predictions",
            json={"input": {"prompt": "hi"}},
            headers={"host": "evil.example", "x-forwarded-proto": "http", "x-forwarded-host": "evil.example"},
        )
        assert all(url.startswith("https://outside.example/v1/") for url in made.json()["urls"].values())


async def test_audio_inline_is_left_out_of_a_list(serve: Serve) -> None:
    async with serve() as client:
        prediction = await speak(client)
        assert prediction["output"].startswith("data:audio/wav;base64,")
        listed = (await client.get("/v1/predictions")).json()["results"]
        assert (listed[0]["id"], listed[0]["output"]) == (prediction["id"], None)


async def test_a_stream_url_opens_no_file_and_a_files_token_no_stream(serve: Serve) -> None:
    async with serve(public_url="https://outside.example") as client:
        token = (await speak(client))["output"].rsplit("/", 1)[1]
        assert (await client.get(f"/v1/streams/{token}")).content == b":408: 408 Request Timeout\n\n"


async def test_six_creates_too_many_are_refused_and_leave_nothing(serve: Serve) -> None:
    """Trap 10: the JavaScript client repeats a create that gets 429 five times at once."""
    async with serve(limits=Limits(streams=1)) as client:
        body = {"input": {"prompt": "hi"}}
        first = (await client.post("/v1/models/test/hangs/predictions", json=body)).json()
        for _ in range(6):
            refused = await client.post("/v1/models/test/hangs/predictions", json=body)
            assert refused.status_code == 429
            assert refused.headers["retry-after"] == "1"
            assert refused.headers["x-should-retry"] == "true"
            assert refused.json()["status"] == 429
        listed = (await client.get("/v1/predictions")).json()["results"]
        assert [prediction["id"] for prediction in listed] == [first["id"]]
