"""Where a connector may lead: every spelling of a private address is refused before any connection."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from adapters.connector_resolver import PublicResolver
from gateway.config import ProviderRow, Settings
from gateway.errors import InvalidRequest
from gateway.trust import Trust

EVERYTHING = r"^.*$"


def trust(*trusted: str, private: tuple[str, ...] = (), base_url: str | None = None) -> Trust:
    row = ProviderRow(name="local", type="openai", base_url=base_url)
    connectors = {"trusted_endpoints": trusted, "private_endpoints": private}
    return Trust(Settings(providers=(row,), models=(), connectors=connectors))


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "0",
        "0.0.0.0",  # noqa: S104 - refused, not bound
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "224.0.0.1",
        "localhost",
        "LOCALHOST.",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:a9fe:a9fe]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[fe80::1]",
        "[fd00:ec2::254]",
    ],
)
def test_no_spelling_of_a_private_address_is_trusted_by_a_pattern_that_matches_everything(host: str) -> None:
    with pytest.raises(InvalidRequest):
        trust(EVERYTHING).check(f"http://{host}/v1")
    with pytest.raises(InvalidRequest):
        trust(EVERYTHING).check(f"http://{host}:8080/v1")


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "gopher://example.com/",
        "ftp://example.com/",
        "https://user:secret@api.openai.com/v1",
        "https://api.openai.com@evil.example/v1",
        "https://api.openai.com\\@evil.example/v1",
        "https://api.openai.com\n.evil.example/v1",
        "https://api.openai.com:0/v1",
        "https://api.openai.com:x/v1",
        "https:///v1",
        "https://évil.example/",
        "",
    ],
)
def test_what_is_no_plain_http_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest):
        trust(EVERYTHING, r"^https://api\.openai\.com/.*$").check(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://api.openai.com.evil.example/v1",
        "https://evil.example/https://api.openai.com/v1",
        "http://api.openai.com/v1",
        "https://bedrock-runtime.evil.example/x.amazonaws.com/model",
    ],
)
def test_the_default_list_cannot_be_imitated(url: str) -> None:
    with pytest.raises(InvalidRequest, match="trusted connector endpoint regex"):
        Trust(Settings()).check(url)


def test_the_default_list_trusts_openai_and_bedrock() -> None:
    for url in ("https://api.openai.com/v1/x", "https://bedrock-runtime.eu-west-1.amazonaws.com/model/m/converse"):
        Trust(Settings()).check(url)
        assert not Trust(Settings()).reaches_private(url)


def test_an_address_is_reached_when_it_was_named() -> None:
    url = "http://127.0.0.1:9000/v1"
    for rules in (
        trust(r"^http://127\.0\.0\.1:\d+/.*$"),
        trust(private=(r"^http://127\..*$",)),
        trust(base_url="http://127.0.0.1:9000/v1"),
    ):
        rules.check(url)
        assert rules.reaches_private(url)
    assert not trust(r"^http://127\.0\.0\.1:\d+/.*$").reaches_private("http://vllm.internal:9000/v1")


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9001/v1/chat",
        "http://127.0.0.1:9000/v2",
        "http://127.0.0.1:9000/v11",
        "http://127.0.0.1:9000/v1/../admin",
        "http://127.0.0.1:9000/v1/%2e%2e/admin",
        "https://127.0.0.1:9000/v1/chat",
    ],
)
def test_beside_a_base_url_nothing_is_trusted(url: str) -> None:
    rules = trust(base_url="http://127.0.0.1:9000/v1")
    rules.check("http://127.0.0.1:9000/v1/chat")
    with pytest.raises(InvalidRequest):
        rules.check(url)


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["93.184.215.14", "10.0.0.1"], ["::1"], ["fe80::1"]])
async def test_a_name_that_resolves_to_a_private_address_is_refused(
    monkeypatch: pytest.MonkeyPatch, addresses: list[str]
) -> None:
    def resolve(*_: Any, **__: Any) -> list[Any]:
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (address, 443, 0, 0))
            if ":" in address
            else (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 443))
            for address in addresses
        ]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(InvalidRequest, match=r"has private ip address: rebound\.example"):
        await PublicResolver().resolve("rebound.example", 443, socket.AF_UNSPEC)
