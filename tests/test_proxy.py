"""HTTPS_PROXY, HTTP_PROXY and NO_PROXY are obeyed, and this machine is never asked for through a proxy."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from adapters.http import HttpUpstream, proxy_for
from adapters.openai_speech import OpenAISpeech
from gateway.config import ProviderRow, Settings
from gateway.errors import UpstreamUnavailable
from gateway.events import AudioDelta
from gateway.request import SpeechRequest
from tests.upstreams.byte_server import Answer, ByteServer, Framing, json_answer

PROXY = "http://proxy.invalid:3128"


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
async def proxy(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ByteServer]:
    """A proxy that answers for whomever it is asked."""
    audio = Answer((bytes(64),), headers={"content-type": "audio/pcm"}, framing=Framing.LENGTH)
    async with ByteServer({"*/audio/speech": audio, "*": json_answer({"from": "the proxy"})}) as server:
        monkeypatch.setenv("HTTP_PROXY", server.url)
        yield server


async def _ask(base_url: str) -> object:
    upstream = HttpUpstream(ProviderRow(name="up", type="openai"), base_url)
    try:
        return await upstream.post_json("/v1/x", {})
    finally:
        await upstream.aclose()


async def test_an_upstream_elsewhere_is_asked_through_the_proxy(proxy: ByteServer) -> None:
    assert await _ask("http://upstream.invalid") == {"from": "the proxy"}
    assert proxy.requests[0].path == "http://upstream.invalid/v1/x"


async def test_what_needs_no_proxy_is_asked_directly(proxy: ByteServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "elsewhere.example,.invalid")
    with pytest.raises(UpstreamUnavailable):
        await _ask("http://upstream.invalid")
    assert proxy.requests == []


async def test_this_machine_is_asked_directly(proxy: ByteServer) -> None:
    async with ByteServer({"/v1/x": json_answer({"from": "itself"})}) as server:
        assert await _ask(server.url) == {"from": "itself"}
    assert proxy.requests == []


async def test_the_openai_package_does_the_same(proxy: ByteServer) -> None:
    for url, through in (("http://upstream.invalid/v1", 1), (f"{proxy.url}/v1", 2)):
        speech = OpenAISpeech(ProviderRow(name="up", type="openai", base_url=url), Settings())
        heard = [event async for event in speech.synthesize(SpeechRequest("m", "Hi."))]
        await speech.aclose()
        assert any(isinstance(event, AudioDelta) for event in heard)
        assert len(proxy.requests) == through
    assert [request.path for request in proxy.requests] == [
        "http://upstream.invalid/v1/audio/speech",
        "/v1/audio/speech",
    ]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://api.example/v1", PROXY),
        ("http://api.example/v1", None),
        ("https://inside.example/v1", None),
        ("https://deep.inside.example:8443", None),
        ("https://127.0.0.1:8000/v1", None),
        ("https://[::1]:8000/v1", None),
        ("https://localhost/v1", None),
        ("nonsense", None),
        ("https://[bad", None),
    ],
)
def test_which_urls_go_through_it(monkeypatch: pytest.MonkeyPatch, url: str, expected: str | None) -> None:
    monkeypatch.setenv("HTTPS_PROXY", PROXY)
    monkeypatch.setenv("NO_PROXY", "inside.example")
    assert proxy_for(url) == expected
