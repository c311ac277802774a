"""Case Z2: no URL that a caller gives leads to this machine, its network or its cloud's metadata, in any spelling.

A listener stands where they would lead. It sees no connection.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.addresses import is_public, resolve_public
from gateway.config import WebhookSettings
from gateway.errors import Forbidden, InvalidRequest
from tests.opensearch.cluster import ML, openai_connector
from tests.opensearch.in_process import in_process
from tests.upstreams.byte_server import Answer, ByteServer, Framing
from wires.replicate.webhook_delivery import parse_target

EVERYTHING = r".*"
PRIVATE = [
    "127.0.0.1", "127.1", "127.0.1", "127.255.255.254", "2130706433", "0x7f000001", "0x7F.0x0.0x0.0x1", "0177.0.0.1",
    "0177.0000.0000.0001", "017700000001", "127.0.0.1.", "0", "0.0.0.0", "00", "0x0", "localhost", "LocalHost",  # noqa: S104
    "localhost.", "10.0.0.1", "0xa.0.0.1", "012.0.0.1", "167772161", "172.16.0.1", "172.31.255.255", "192.168.0.1",
    "192.168.257", "0xc0a80001", "100.64.0.1", "169.254.169.254", "169.254.43518", "2852039166", "0xa9fea9fe",
    "0251.0376.0251.0376", "0xA9.254.0251.254", "169.254.170.2", "100.100.100.200", "192.0.0.192", "224.0.0.1",
    "255.255.255.255", "240.0.0.1", "192.0.2.1", "198.18.0.1", "[::1]", "[::]", "[0:0:0:0:0:0:0:1]",
    "[0000:0000:0000:0000:0000:0000:0000:0001]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]",
    "[::ffff:169.254.169.254]", "[::ffff:0:127.0.0.1]", "[64:ff9b::127.0.0.1]", "[64:ff9b::a9fe:a9fe]",
    "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]", "[2002:a9fe:a9fe::1]", "[2001:0:7f00:1::]", "[fe80::1]", "[fe80::1%25lo]",
    "[fd00:ec2::254]", "[fc00::1]", "[ff02::1]", "[fec0::1]", "[2001:db8::1]", "[100::1]",
]  # fmt: skip
UGLY = [
    "http://public.example@127.0.0.1:{port}/", "http://127.0.0.1:{port}@public.example/", "http://user:pw@127.0.0.1:{port}/",
    "http://１２７.０.０.１:{port}/", "http://①②⑦.⓪.⓪.①:{port}/", "http://127。0。0。1:{port}/", "http://loc\u00adalhost:{port}/",
    "http://127.0.0.1:{port}\\@public.example/", "http:\\\\127.0.0.1:{port}/", "http:///127.0.0.1:{port}/",
    "//127.0.0.1:{port}/", "http:127.0.0.1:{port}/", "http://127.0.0.1:{port}#@public.example/", "HTTP://127.0.0.1:{port}/",
    "http://127.0.0.1%2f@public.example:{port}/", "http://%31%32%37.0.0.1:{port}/",
    "http://127.0.0.1%00.public.example:{port}/",
    "http://127.0.0.1\t:{port}/", "http://127.0.0.1\r\nhost: x:{port}/", " http://127.0.0.1:{port}/", "http://[::1:{port}/",
    "file:///etc/passwd", "gopher://127.0.0.1:{port}/_x", "ftp://127.0.0.1:{port}/", "dict://127.0.0.1:{port}/",
    "data:,x",     "unix:///tmp/socket", "http+unix://%2ftmp%2fsocket/", "jar:http://127.0.0.1:{port}!/",
    "", "http://", "127.0.0.1:{port}",
]  # fmt: skip
NAMES = {
    "one.rebound.example": ["127.0.0.1"],
    "two.rebound.example": ["93.184.216.34", "127.0.0.1"],
    "six.rebound.example": ["::ffff:127.0.0.1"],
    "metadata.example": ["169.254.169.254"],
    "nat64.example": ["64:ff9b::7f00:1"],
    "sixtofour.example": ["2002:7f00:1::"],
    "scoped.example": ["fe80::1%lo"],
}
"""What a hostile name server says."""


@asynccontextmanager
async def trap() -> AsyncIterator[tuple[int, list[Any]]]:
    """A listener on every loopback address, and what connected to it."""
    caught: list[Any] = []

    def catch(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        caught.append(writer.get_extra_info("peername"))
        writer.close()

    server = await asyncio.start_server(catch, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        yield port, caught


@pytest.fixture
def hostile_names(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = socket.getaddrinfo

    def lying(host: Any, port: Any, *args: Any, **options: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name not in NAMES:
            return resolve(host, port, *args, **options)
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (address, port, 0, 0))
            if ":" in address
            else (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            for address in NAMES[name]
        ]

    monkeypatch.setattr(socket, "getaddrinfo", lying)


def urls(port: int) -> list[str]:
    """Every spelling, with the trap's port and with none."""
    plain = [f"http://{host}:{port}/v1" for host in (*PRIVATE, *NAMES)]
    secure = [f"https://{host}/latest/meta-data" for host in PRIVATE]
    return [*plain, *secure, *(url.replace("{port}", str(port)) for url in UGLY)]


def test_there_are_more_than_sixty_spellings() -> None:
    assert len({*PRIVATE}) >= 60
    assert len(urls(1)) > 150


async def test_no_connector_reaches_the_trap(tmp_path: Path, hostile_names: None) -> None:
    """An administrator trusts everything; what is private must have been named."""
    connectors = {"trusted_endpoints": [EVERYTHING]}
    async with trap() as (port, caught), in_process(tmp_path, connectors=connectors) as client:
        for url in urls(port):
            created = await client.post(f"{ML}/connectors/_create", json=openai_connector(url.removesuffix("/v1")))
            if created.status_code == 200:
                answer = await _ask_through(client, created.json()["connector_id"])
                assert answer.status_code >= 400, url
            else:
                assert created.status_code == 400, (url, created.text)
        assert caught == []


async def _ask_through(client: Any, connector: str) -> Any:
    body = {"name": "m", "function_name": "remote", "connector_id": connector}
    model = (await client.post(f"{ML}/models/_register?deploy=true", json=body)).json()["model_id"]
    return await client.post(f"{ML}/models/{model}/_predict", json={"parameters": {"messages": []}})


async def test_no_webhook_reaches_the_trap(hostile_names: None) -> None:
    trusting = WebhookSettings(trusted_endpoints=(EVERYTHING,))
    async with trap() as (port, caught):
        for url in urls(port):
            refused = None
            try:
                target = parse_target(url.replace("http://", "https://"), trusting)
                await resolve_public(target.host, target.port)
            except (InvalidRequest, Forbidden) as error:
                refused = error
            assert refused is not None, url
        assert caught == []


async def test_a_name_is_resolved_once_and_its_address_connected_to(hostile_names: None, monkeypatch: Any) -> None:
    """A name that is public when it is checked and private when it is connected to."""
    asked: list[str] = []
    answers = iter([["1.1.1.1"], ["127.0.0.1"]])

    def turning(host: Any, port: Any, *args: Any, **options: Any) -> Any:
        asked.append(str(host))
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in next(answers)]

    monkeypatch.setattr(socket, "getaddrinfo", turning)
    assert await resolve_public("turning.example", 443) == "1.1.1.1"
    assert asked == ["turning.example"]


async def test_an_answer_that_sends_elsewhere_is_not_followed(tmp_path: Path) -> None:
    """A redirect of a trusted service."""
    async with trap() as (port, caught):
        for status in (301, 302, 303, 307, 308):
            away = Answer((b"",), status, {"location": f"http://127.0.0.1:{port}/"}, Framing.LENGTH)
            async with ByteServer({"/v1/chat/completions": away}) as trusted:
                connectors = {"trusted_endpoints": [], "private_endpoints": [f"{trusted.url}/.*"]}
                async with in_process(tmp_path / str(status), connectors=connectors) as client:
                    created = await client.post(f"{ML}/connectors/_create", json=openai_connector(trusted.url))
                    answer = await _ask_through(client, created.json()["connector_id"])
                    assert answer.status_code >= 400
                    assert len(trusted.requests) == 1
        assert caught == []


@pytest.mark.parametrize("kind", ["image_url", "input_image"])
async def test_no_image_is_fetched(tmp_path: Path, kind: str) -> None:
    """A picture's URL is passed on or refused; this service never opens it."""
    async with trap() as (port, caught), in_process(tmp_path) as client:
        url = f"http://127.0.0.1:{port}/cat.png"
        image = {"type": kind, "image_url": {"url": url} if kind == "image_url" else url}
        content = [{"type": "text" if kind == "image_url" else "input_text", "text": "what is it?"}, image]
        message = {"role": "user", "content": content}
        path, field = ("/v1/chat/completions", "messages") if kind == "image_url" else ("/v1/responses", "input")
        await client.post(path, json={"model": "echo", field: [message]})
        for given in ({"prompt": "hi", "image": url}, {"prompt": "hi", "audio": url}):
            await client.post("/v1/models/test/echo/predictions", json={"input": given}, headers={"prefer": "wait=1"})
        assert caught == []


def test_public_addresses_are_public() -> None:
    for address in ("1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "64:ff9b::101:101", "::ffff:1.1.1.1"):
        assert is_public(ipaddress.ip_address(address)), address
