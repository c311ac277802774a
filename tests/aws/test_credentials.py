"""Who calls AWS and where: found as boto3 finds it, never on the event loop, and told clearly when it is missing."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import json
import os
import ssl
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from adapters.aws_failures import code_word
from gateway.config import ProviderType
from gateway.errors import GatewayError, UpstreamError
from tests.aws.account import (
    CANARIES,
    KINDS,
    answer,
    at,
    events,
    provider,
    read_all,
    text_of,
)
from tests.upstreams.aws_fake import CONVERSE_TEXT, SENTENCE, refusal, stream
from tests.upstreams.byte_server import ByteServer, serving

KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
TOKEN = "sk-canary-bedrock-api-key"
each = pytest.mark.parametrize("kind", KINDS)


async def refused(adapter: Any) -> GatewayError:
    async with aclosing(adapter):
        seen, error = await read_all(events(adapter))
    assert seen == []
    assert isinstance(error, UpstreamError)
    assert error.code == "provider_credentials"
    return error


def without_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in KEYS:
        monkeypatch.delenv(variable)


@each
async def test_no_credentials(kind: ProviderType, monkeypatch: pytest.MonkeyPatch) -> None:
    without_keys(monkeypatch)
    async with serving(answer(kind)) as server:
        assert "found no AWS credentials" in (await refused(provider(kind, server.url))).message
    assert server.requests == []


async def test_credentials_that_come_later_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    without_keys(monkeypatch)
    async with serving(stream(*CONVERSE_TEXT)) as server, at(server, "bedrock") as bedrock:
        _, error = await read_all(events(bedrock))
        assert error is not None
        monkeypatch.setenv(KEYS[0], CANARIES[0])
        monkeypatch.setenv(KEYS[1], CANARIES[1])
        _, error = await read_all(events(bedrock))
    assert error is None


async def test_no_region_an_unknown_profile_and_a_wrong_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    assert "no AWS region" in (await refused(provider("bedrock", None, region=None))).message
    assert "profile 'nobody'" in (await refused(provider("bedrock", None, profile="nobody"))).message
    assert "endpoint_url" in (await refused(provider("bedrock", "http://[not a url"))).message


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_BEDROCK_RUNTIME"])
async def test_the_endpoint_and_region_of_the_environment_are_used(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(stream(*CONVERSE_TEXT)) as server:
        monkeypatch.setenv(variable, server.url)
        monkeypatch.setenv("AWS_DEFAULT_REGION", "ap-northeast-2")
        async with aclosing(provider("bedrock", None, region=None)) as bedrock:
            _, error = await read_all(events(bedrock))
    assert error is None
    assert "/ap-northeast-2/bedrock/aws4_request" in server.requests[0].headers["authorization"]


@pytest.fixture
def process_profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A profile whose credentials a process reads out of the returned path, which is still to be made."""
    without_keys(monkeypatch)
    path = tmp_path / "keys.json"
    (tmp_path / "config").write_text(f"[profile slow]\ncredential_process = /bin/cat {path}\n")
    return path


@pytest.fixture
def slow_profile(process_profile: Path) -> Path:
    """The same with a pipe: the process waits until somebody writes."""
    os.mkfifo(process_profile)
    return process_profile


def keys(name: str, minutes: int) -> str:
    expires = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=minutes)
    return json.dumps(
        {"Version": 1, "AccessKeyId": name, "SecretAccessKey": "s" * 20, "Expiration": expires.isoformat()}
    )


async def test_slow_credentials_hold_up_no_other_stream(slow_profile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        serving(stream(*CONVERSE_TEXT)) as server,
        at(server, "bedrock", profile="slow") as slow,
        at(server, "bedrock") as quick,
        aclosing(events(slow)) as waiting,
    ):
        first = asyncio.ensure_future(anext(waiting))
        for variable, canary in zip(KEYS, CANARIES, strict=True):
            monkeypatch.setenv(variable, canary)
        seen, error = await read_all(events(quick))
        assert (text_of(seen), error) == (SENTENCE, None)
        assert not first.done()
        await asyncio.to_thread(slow_profile.write_text, keys("AKIDSLOW", 60))
        await first
    assert used_keys(server) == [CANARIES[0], "AKIDSLOW"]


async def test_credentials_due_for_a_refresh_are_refreshed(process_profile: Path) -> None:
    async with serving(stream(*CONVERSE_TEXT)) as server, at(server, "bedrock", profile="slow") as bedrock:
        for name, minutes in (("AKIDFIRST", 1), ("AKIDSECOND", 60), ("AKIDTHIRD", 60)):
            await asyncio.to_thread(process_profile.write_text, keys(name, minutes))
            await read_all(events(bedrock))
    assert used_keys(server) == ["AKIDFIRST", "AKIDSECOND", "AKIDSECOND"]


async def test_a_slow_refresh_holds_up_no_other_stream(process_profile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await asyncio.to_thread(process_profile.write_text, keys("AKIDFIRST", 1))
    async with (
        serving(stream(*CONVERSE_TEXT)) as server,
        at(server, "bedrock", profile="slow") as slow,
        at(server, "bedrock") as quick,
    ):
        await read_all(events(slow))
        await asyncio.to_thread(process_profile.unlink)
        os.mkfifo(process_profile)
        for variable, canary in zip(KEYS, CANARIES, strict=True):
            monkeypatch.setenv(variable, canary)
        waiting = asyncio.ensure_future(read_all(events(slow)))
        await read_all(events(quick))
        assert not waiting.done()
        await asyncio.to_thread(process_profile.write_text, keys("AKIDSECOND", 60))
        await waiting
    assert used_keys(server) == ["AKIDFIRST", CANARIES[0], "AKIDSECOND"]


def used_keys(server: ByteServer) -> list[str]:
    signed = (request.headers["authorization"] for request in server.requests)
    return [value.partition("Credential=")[2].partition("/")[0] for value in signed]


async def test_leaving_while_credentials_are_looked_up_returns_at_once(slow_profile: Path) -> None:
    async with serving(stream(*CONVERSE_TEXT)) as server, at(server, "bedrock", profile="slow") as bedrock:
        reading = asyncio.ensure_future(read_all(events(bedrock)))
        writing = asyncio.to_thread(slow_profile.write_text, keys("AKIDLATE", 60))
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await writing
    assert server.requests == []


async def test_a_bearer_token_is_never_sent_unencrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", TOKEN)
    async with serving(stream(*CONVERSE_TEXT)) as server:
        error = await refused(provider("bedrock", server.url))
        async with at(server, "sagemaker") as sagemaker:
            await read_all(events(sagemaker))
    assert "https" in error.message
    assert TOKEN not in error.message
    (request,) = server.requests
    assert request.headers["authorization"].startswith("AWS4-HMAC-SHA256")


@pytest.mark.parametrize("source", ["AWS_BEARER_TOKEN_BEDROCK", "row"])
async def test_a_bearer_token_goes_before_credentials(
    source: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    more: dict[str, Any] = {"ca_file": tmp_path / "ca.pem"}
    if source == "row":
        monkeypatch.setenv("MY_BEDROCK_KEY", TOKEN)
        more["api_key_env"] = "MY_BEDROCK_KEY"
    else:
        monkeypatch.setenv(source, TOKEN)
    context = loopback_certificate(tmp_path)
    told = {"message": f"The key {TOKEN} is wrong."}
    answers = stream(*CONVERSE_TEXT), refusal(400, "ValidationException", told), refusal(403, "", told)
    async with serving(*answers, tls=context) as server, at(server, "bedrock", **more) as bedrock:
        seen, error = await read_all(events(bedrock))
        _, refused_once = await read_all(events(bedrock))
        _, refused_twice = await read_all(events(bedrock))
    assert (text_of(seen), error) == (SENTENCE, None)
    assert server.requests[0].headers["authorization"] == f"Bearer {TOKEN}"
    for shown in (refused_once, refused_twice):
        assert shown is not None
        assert TOKEN not in shown.message


async def test_a_certificate_that_nobody_signed_is_refused(tmp_path: Path) -> None:
    context = loopback_certificate(tmp_path)
    async with serving(stream(*CONVERSE_TEXT), tls=context) as server, at(server, "bedrock") as bedrock:
        _, error = await read_all(events(bedrock))
    assert error is not None
    assert "certificate" in error.message


def loopback_certificate(folder: Path) -> ssl.SSLContext:
    """A server context for 127.0.0.1; what a client must trust is written to `ca.pem`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "ca.pem").write_bytes(pem)
    (folder / "server.pem").write_bytes(private + pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    return context


@each
def test_an_adapter_is_built_without_network_credentials_or_loop(kind: ProviderType) -> None:
    program = (
        "import socket, sys\n"
        "socket.socket.connect = None\n"
        "from adapters import build\n"
        "from gateway.config import ProviderRow, Settings\n"
        f"row = ProviderRow(name='x', type={kind!r})\n"
        f"print(build(row, {'speech' if kind == 'polly' else 'chat'!r}, Settings()).name)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], env={}, capture_output=True, text=True, check=True)
    assert done.stdout == "x\n"


def test_all_spellings_of_a_code_agree() -> None:
    spellings = [
        "ThrottlingException:http://internal.amazon.com/coral/com.amazon.bedrock/",
        "com.amazon.coral#ThrottlingException",
        "throttlingException",
        "Throttling",
    ]
    assert {code_word(spelling) for spelling in spellings} == {"throttling"}
    assert code_word("ModelErrorException") == code_word("ModelError") == "modelerror"
