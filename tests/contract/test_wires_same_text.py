"""Cross-wire equality: one upstream, cut anywhere, gives the same text over every wire, streamed and whole."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from google.protobuf.json_format import ParseError

from gateway.events import FinishReason
from tests.contract.test_wires import every
from tests.contract.texts import COUNT, texts
from tests.contract.wire_clients import Clients, clients
from tests.contract.wire_entry import ERROR, WireEntry
from tests.contract.wires import messages
from tests.running import Service

MODEL = "pieces"
AT_ONCE = 4
TEXTS = texts()
Say = Callable[[Clients, str], Awaitable[str]]


@pytest.fixture
async def asking(service: Service) -> AsyncIterator[Clients]:
    async with clients(service) as opened:
        yield opened


async def say_all(say: Callable[[str], Awaitable[str]]) -> list[str]:
    """What comes back for each of the texts, a few of them at a time."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(text: str) -> str:
        async with room:
            return await say(text)

    return await asyncio.gather(*map(one, TEXTS))


@every
async def test_a_text_arrives_byte_for_byte(asking: Clients, entry: WireEntry) -> None:
    assert len(set(TEXTS)) == COUNT

    async def say(text: str) -> str:
        answer = entry.read(await entry.ask(asking, MODEL, text))
        assert answer.ends == [entry.reason(FinishReason.STOP)]
        return answer.text

    assert await say_all(say) == [entry.carried(text) for text in TEXTS]


def whole(path: str, body: Callable[[str], Any], pick: Callable[[Any], str]) -> Say:
    async def say(clients: Clients, text: str) -> str:
        raw = await clients.post(path, body(text))
        assert raw.status in (200, 201), raw.body
        return pick(json.loads(raw.body))

    return say


async def whole_prediction(clients: Clients, text: str) -> str:
    path = f"/v1/models/test/{MODEL}/predictions"
    raw = await clients.post(path, {"input": {"prompt": text}}, {"prefer": "wait=20"})
    return "".join(json.loads(raw.body)["output"])


def message_of(body: Any) -> str:
    return str(body["choices"][0]["message"]["content"])


WHOLE: dict[str, Say] = {
    "openai chat": whole("/v1/chat/completions", lambda text: {"model": MODEL, "messages": messages(text)}, message_of),
    "openai completions": whole(
        "/v1/completions", lambda text: {"model": MODEL, "prompt": text}, lambda body: str(body["choices"][0]["text"])
    ),
    "openai responses": whole(
        "/v1/responses",
        lambda text: {"model": MODEL, "input": text},
        lambda body: str(body["output"][0]["content"][0]["text"]),
    ),
    "replicate": whole_prediction,
    "ml commons": whole(
        f"/_plugins/_ml/models/{MODEL}/_predict",
        lambda text: {"parameters": {"prompt": text}},
        lambda body: message_of(body["inference_results"][0]["output"][0]["dataAsMap"]),
    ),
    "sagemaker messages": whole("/invocations", lambda text: {"model": MODEL, "messages": messages(text)}, message_of),
    "sagemaker inputs": whole(
        "/invocations", lambda text: {"model": MODEL, "inputs": text}, lambda body: str(body[0]["generated_text"])
    ),
    "sagemaker runtime": whole(
        f"/endpoints/{MODEL}/invocations", lambda text: {"inputs": text}, lambda body: str(body[0]["generated_text"])
    ),
}


@pytest.mark.parametrize("say", WHOLE.values(), ids=WHOLE)
async def test_a_whole_answer_is_the_same_text(asking: Clients, say: Say) -> None:
    assert await say_all(lambda text: say(asking, text)) == TEXTS


HALVES = ("\ud83d", "a\udc4bb", "\ude00\ud83d", " \udfff")
"""JSON can write half of a surrogate pair; no encoding can carry it."""

INPUT_IS_422 = ("sagemaker messages", "sagemaker inputs", "sagemaker prompt")
"""TGI's status for a wrong input."""


@pytest.mark.parametrize("text", HALVES, ids=ascii)
@every
async def test_half_a_character_is_refused(asking: Clients, entry: WireEntry, text: str) -> None:
    if entry.name == "ml commons grpc":
        with pytest.raises(ParseError, match="surrogate"):
            await entry.ask(asking, MODEL, text)
        return
    raw = await entry.ask(asking, MODEL, text)
    answer = entry.read(raw)
    assert answer.ends == [ERROR]
    assert answer.error
    if raw.status == 101:
        # A socket says in its last message whose fault it is.
        last = json.loads(raw.body.rpartition(b"\n")[2])
        said = last if "status" in last else last.get("error") or last["response"]["status_details"]["error"]
        assert 400 in said.values() or "invalid_request_error" in said.values()
    else:
        assert raw.status == (422 if entry.name in INPUT_IS_422 else 400)
