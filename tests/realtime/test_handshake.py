"""Who may open a session, how it is refused, client secrets, and the limits of a socket."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai.types.realtime import ClientSecretCreateResponse
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from gateway.config import Settings
from tests.realtime.conftest import KEY
from tests.realtime.sessions import SECONDS, Realtime, check, kinds, realtime
from tests.running import Service
from tests.test_leaving import wait_for
from wires.client_keys import ClientKey, ClientKeys


async def refusal(connection: ClientConnection) -> tuple[dict[str, Any], int, str]:
    """The error event, the close code and its reason."""
    event = check(json.loads(await asyncio.wait_for(connection.recv(), SECONDS)))
    with pytest.raises(ConnectionClosed):
        await asyncio.wait_for(connection.recv(), SECONDS)
    return event["error"], connection.close_code or 0, connection.close_reason or ""


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("?model=nobody", 4404, "model_not_found"),
        ("?model=voice", 4400, "invalid_request"),
        ("?intent=translation", 4400, "invalid_request"),
        ("?call_id=c1", 4400, "unsupported"),
    ],
)
async def test_what_is_not_served_is_an_error_and_a_close(service: Service, query: str, status: int, code: str) -> None:
    async with connect(f"{service.ws_url}/v1/realtime{query}") as connection:
        error, closed, reason = await refusal(connection)
        assert (error["code"], closed, reason) == (code, status, f"invalid_request_error.{code}")


async def test_without_a_model_the_default_answers(service: Service) -> None:
    async with realtime(service, "") as session:
        assert session.events[0]["session"]["model"] == "default"


async def test_only_our_own_subprotocol_is_selected(service: Service) -> None:
    async with realtime(service, subprotocols=["realtime", "openai-insecure-api-key.k"]) as session:
        assert session.connection.subprotocol == "realtime"
    async with realtime(service, subprotocols=["openai-insecure-api-key.k"]) as session:
        assert session.connection.subprotocol is None


def trusting(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=certificate[0])


async def test_without_the_key_there_is_no_session(secure: Service, certificate: tuple[Path, Path]) -> None:
    trust = trusting(certificate)
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Bearer ek_wrong.wrong"}):
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"{secure.ws_url}/v1/realtime", ssl=trust, additional_headers=headers)
        assert refused.value.response.status_code == 401


async def test_a_client_secret_opens_sessions_and_nothing_else(secure: Service, certificate: tuple[Path, Path]) -> None:
    trust = trusting(certificate)
    async with openai.AsyncOpenAI(
        base_url=f"{secure.url}/v1", api_key=KEY, http_client=openai.DefaultAsyncHttpxClient(verify=trust)
    ) as client:
        issued = await client.realtime.client_secrets.create(
            expires_after={"anchor": "created_at", "seconds": 60},
            session={"type": "realtime", "model": "echo", "instructions": "Be brief.", "output_modalities": ["text"]},
        )
    ClientSecretCreateResponse.model_validate(issued.to_dict(), strict=True)
    assert issued.value.startswith("ek_")
    assert 55 <= issued.expires_at - time.time() <= 61
    headers = {"authorization": f"Bearer {issued.value}"}
    for _ in range(2):
        # What the secret says of the model holds, whatever the address says.
        async with connect(
            f"{secure.ws_url}/v1/realtime?model=hello", ssl=trust, additional_headers=headers
        ) as connection:
            session = Realtime(connection)
            created = (await session.read())["session"]
            assert (created["model"], created["instructions"]) == ("echo", "Be brief.")
    async with httpx.AsyncClient(verify=trust, headers=headers) as http:
        assert (await http.get(f"{secure.url}/v1/models")).status_code == 401
        assert (await http.post(f"{secure.url}/v1/realtime/client_secrets", json={})).status_code == 401
    with pytest.raises(InvalidStatus):
        await connect(f"{secure.ws_url}/ws", ssl=trust, additional_headers=headers)


@pytest.mark.parametrize(
    "body",
    [
        {"expires_after": {"anchor": "created_at", "seconds": 9}},
        {"session": {"type": "translation"}},
        {"session": {"model": "nobody"}},
        {"session": {"output_modalities": ["smell"]}},
    ],
)
def test_a_wrong_client_secret_is_refused(service: Service, body: dict[str, Any]) -> None:
    answer = httpx.post(f"{service.url}/v1/realtime/client_secrets", json=body)
    assert answer.status_code in (400, 404)
    assert answer.json()["error"]["message"]


def test_keys_expire_and_cannot_be_forged() -> None:
    keys = ClientKeys(Settings(api_keys=("one", "two")))
    value = keys.issue(ClientKey(1_000, {"model": "echo"}))
    assert keys.read(value, 999) == ClientKey(1_000, {"model": "echo"})
    assert keys.read(value, 1_000) is None
    packed, _, signature = value.partition(".")
    later = ClientKeys(Settings()).issue(ClientKey(9_000, {"model": "echo"}))
    for forged in (later, f"{later.partition('.')[0]}.{signature}", f"{packed}.", packed, "ek_", "ek_é.é", value[3:]):
        assert keys.read(forged, 0) is None
    assert ClientKeys(Settings(api_keys=("two", "one"))).read(value, 0) is not None


async def test_a_message_above_the_limit_closes_with_1009_and_the_service_lives(service: Service) -> None:
    """Case W3."""
    async with connect(f"{service.ws_url}/v1/realtime?model=echo") as connection:
        await connection.recv()
        # The service may hang up while the message is still being sent.
        with suppress(ConnectionClosed):
            await connection.send("x" * 20 * 1024 * 1024)
        with pytest.raises(ConnectionClosed):
            await asyncio.wait_for(connection.recv(), SECONDS)
        assert connection.close_code == 1009
    async with realtime(service) as session:
        await session.update(output_modalities=["text"], audio={"input": {"turn_detection": None}})
        # The largest that OpenAI allows: 15 MiB of base64.
        await session.append(bytes(15 * 1024 * 1024 // 4 * 3))
        assert kinds([await session.ask("input_audio_buffer.clear", "input_audio_buffer.cleared")])


async def test_a_binary_message_is_taken_for_text_and_nonsense_for_an_error(service: Service) -> None:
    async with realtime(service) as session:
        await session.connection.send(b'{"type": "input_audio_buffer.clear"}')
        assert (await session.read())["type"] == "input_audio_buffer.cleared"
        for nonsense in (b"\xff\xfe", "", "null", "hello"):
            await session.connection.send(nonsense)
            assert (await session.read())["error"]["code"] == "invalid_json"


async def test_leaving_in_the_middle_closes_the_provider(service: Service) -> None:
    async with realtime(service, "?model=hangs-midway") as session:
        await session.update(output_modalities=["text"])
        await session.write("hi")
        await session.say("response.create")
        await session.until("response.output_text.delta")
        assert service.metric("polywire_streams_open", wire="realtime") == 1
    await asyncio.to_thread(wait_for, lambda: service.metric("polywire_streams_open", wire="realtime") == 0)
