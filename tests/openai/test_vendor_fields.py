"""A caller's fields that are not OpenAI's: an SDK's `extra_body`, by which people set what their server can do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from adapters.chat_body import chat_body
from tests.running import Service, running
from tests.upstreams.byte_server import Answer, ByteServer
from wires.chat_body import ChatBody, parse

VENDOR = {
    "top_k": 20,
    "min_p": 0.1,
    "repetition_penalty": 1.05,
    "chat_template_kwargs": {"enable_thinking": False},
    "guided_json": {"type": "object"},
    "foo": [1, None],
}
HI = [{"role": "user", "content": "hi"}]
CHUNK = {"choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}]}


def sent(**fields: Any) -> dict[str, Any]:
    """The body that an OpenAI-compatible server gets."""
    return chat_body(parse(ChatBody.model_validate({"model": "m", "messages": HI, **fields})))


def test_what_is_not_openais_is_passed_on_as_it_is() -> None:
    body = sent(**VENDOR)
    assert {name: body[name] for name in VENDOR} == VENDOR


def test_nothing_of_ours_is_replaced_and_nothing_that_was_refused_or_left_empty_goes_along() -> None:
    body = sent(ml_parameters={"messages": "x"}, max_tokens_field="y", functions=[], logprobs=False, foo=None)
    assert body["messages"] == HI
    assert not {"ml_parameters", "functions", "logprobs", "foo"} & set(body)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_what_no_server_could_be_sent_is_refused_by_its_name(service: Service, path: str) -> None:
    body = json.dumps({"model": "hello", "messages": HI, "prompt": "hi", "foo": {"a": "\ud800"}})
    answer = httpx.post(f"{service.url}{path}", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "foo"


async def test_extra_body_of_the_sdk_reaches_the_server(tmp_path: Path) -> None:
    said = b"data: " + json.dumps(CHUNK).encode() + b"\n\ndata: [DONE]\n\n"
    async with ByteServer({"/v1/chat/completions": Answer([said])}) as server:
        config = {
            "providers": [{"name": "up", "type": "openai", "base_url": f"{server.url}/v1"}],
            "models": [{"id": "m", "provider": "up", "upstream": "theirs"}],
        }
        with running(tmp_path, config) as service:
            client = openai.AsyncOpenAI(base_url=f"{service.url}/v1", api_key="none")
            stream = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "hi"}], stream=True, extra_body=VENDOR
            )
            assert [chunk.choices[0].delta.content async for chunk in stream if chunk.choices][1] == "ok"
            await client.close()
        body = json.loads(server.requests[0].body)
    assert {name: body[name] for name in VENDOR} == VENDOR
    assert body["model"] == "theirs"
