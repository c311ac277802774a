"""`_predict` and `_predict/stream` of registered models, with a fake remote service that counts and cuts."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.opensearch.cluster import (
    HELLO,
    KEY,
    ML,
    OPENAI,
    TEMPLATE,
    Cluster,
    as_json,
    chat,
    completion,
    contents,
    data_map,
    frames,
    openai_connector,
    reason,
    streamed,
)
from tests.opensearch.in_process import in_process
from tests.upstreams.byte_server import serving
from tests.upstreams.cutting import one_byte_each

ASKED = {"messages": HELLO, "_llm_interface": OPENAI}
AWKWARD = 'say "hi" \\ back\\slash\nnew\ttab </s> ${parameters.model} ${credential.openAI_key} 👋🏽 한글 {"a":1}'


async def test_case_18_predict_gives_the_remote_json(cluster: Cluster) -> None:
    async with serving(as_json(completion("안녕"))) as remote:
        model = await cluster.register(openai_connector(remote.url))
        answer = await cluster.predict(model, {"messages": HELLO})
        assert answer.json() == {
            "inference_results": [
                {"output": [{"name": "response", "dataAsMap": completion("안녕")}], "status_code": 200}
            ]
        }
        assert remote.requests[0].headers["authorization"] == f"Bearer {KEY}"


async def test_case_19_what_the_template_misses_is_said(cluster: Cluster) -> None:
    async with serving(as_json({})) as remote:
        quoted = openai_connector(remote.url, action={"request_body": '{"input": "${parameters.input}"}'})
        bare = openai_connector(remote.url, action={"request_body": '{"input": ${parameters.input} }'})
        illegal = "illegal_argument_exception"
        answer = await cluster.predict(await cluster.register(quoted), {})
        assert reason(answer) == (400, illegal, "Some parameter placeholder not filled in payload: input")
        answer = await cluster.predict(await cluster.register(bare), {})
        assert reason(answer) == (400, illegal, 'Invalid payload: {"input": ${parameters.input} }')
        assert remote.requests == []


async def test_case_20_stream_is_added_and_otherwise_the_template_is_untouched(cluster: Cluster) -> None:
    async with serving(streamed(*chat("Hi")), as_json({})) as remote:
        model = await cluster.register(openai_connector(remote.url))
        await cluster.stream(model, ASKED)
        await cluster.predict(model, ASKED)
        messages = '[{"role":"user","content":"Hello world"}]'
        streaming, plain = remote.requests
        assert streaming.body.decode() == f'{{"model":"gpt-3.5-turbo","messages":{messages},"stream":true}}'
        assert plain.body.decode() == f'{{ "model": "gpt-3.5-turbo", "messages": {messages} }}'
        assert streaming.headers["accept"] == "text/event-stream"


@pytest.mark.parametrize(
    ("flag", "status", "kind", "words"),
    [
        ("stream_enabled", 500, "illegal_state_exception", "Streaming is currently disabled"),
        ("remote_inference_enabled", 400, "status_exception", "Remote Inference is currently disabled"),
    ],
)
async def test_cases_21_and_22_flags_of_the_configuration(
    tmp_path: Path, flag: str, status: int, kind: str, words: str
) -> None:
    async with in_process(tmp_path, connectors={flag: False}) as client:
        answer = await client.post(f"{ML}/models/echo/_predict/stream", json={"parameters": ASKED})
        whole = f'{words}. To enable it, update the setting "plugins.ml_commons.{flag}" to true.'
        assert reason(answer) == (status, kind, whole)


async def test_case_22_models_that_do_not_stream(cluster: Cluster) -> None:
    answer = await cluster.stream("nobody", ASKED)
    assert reason(answer) == (404, "status_exception", "Failed to find model")
    answer = await cluster.stream("voice", ASKED)
    words = "Streaming is only supported for remote models"
    assert reason(answer) == (500, "illegal_state_exception", words)
    body = {"action_type": "batch_predict", "parameters": ASKED}
    answer = await cluster.client.post(f"{ML}/models/echo/_predict/stream", json=body)
    words = "Streaming is not supported for batch predict."
    assert reason(answer) == (500, "illegal_state_exception", words)


async def test_case_23_the_stream_byte_for_byte(cluster: Cluster) -> None:
    async with serving(streamed(*chat("Sure", "!"))) as remote:
        answer = await cluster.stream(await cluster.register(openai_connector(remote.url)), ASKED)
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.headers["cache-control"] == "no-cache"
        assert answer.headers["connection"] == "keep-alive"
        assert answer.text == (
            'data: {"inference_results":[{"output":[{"name":"response","dataAsMap":'
            '{"content":"Sure","is_last":false}}]}]}\n\n'
            'data: {"inference_results":[{"output":[{"name":"response","dataAsMap":'
            '{"content":"!","is_last":false}}]}]}\n\n'
            'data: {"inference_results":[{"output":[{"name":"response","dataAsMap":'
            '{"content":"","is_last":true}}]}]}\n\n'
        )


async def test_case_23_text_arrives_while_the_model_is_still_writing(cluster: Cluster) -> None:
    go_on = asyncio.Event()
    async with serving(streamed(*chat("One")[:2], go_on, *chat(" two")[1:])) as remote:
        model = await cluster.register(openai_connector(remote.url))
        path = f"{ML}/models/{model}/_predict/stream"
        async with cluster.client.stream("POST", path, json={"parameters": ASKED}) as answer:
            pieces = answer.aiter_bytes()
            assert data_map(frames(await anext(pieces))[0])["content"] == "One"
            go_on.set()
            rest = b"".join([piece async for piece in pieces])
        assert contents(rest) == [" two"]


@pytest.mark.parametrize("interface", [None, "bedrock/converse", "bedrock/converse/claude"])
async def test_case_26_an_interface_that_does_not_fit_is_a_frame(cluster: Cluster, interface: str | None) -> None:
    async with serving(streamed(*chat("Hi"))) as remote:
        parameters: dict[str, Any] = {"messages": HELLO} | ({"_llm_interface": interface} if interface else {})
        answer = await cluster.stream(await cluster.register(openai_connector(remote.url)), parameters)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream")
        (failure,) = frames(answer.content)
        assert failure["error"].startswith("Fail to execute streaming")
        assert remote.requests == []


async def test_case_26_the_connector_may_name_the_interface(cluster: Cluster) -> None:
    async with serving(streamed(*chat("Hi"))) as remote:
        parameters = {"model": "gpt-3.5-turbo", "_llm_interface": f" {OPENAI.upper()} "}
        model = await cluster.register(openai_connector(remote.url, parameters=parameters))
        assert contents((await cluster.stream(model, {"messages": HELLO})).content) == ["Hi"]


async def test_case_28_utf_8_is_raw_and_survives_one_byte_writes(cluster: Cluster) -> None:
    pieces = one_byte_each(b"".join(chat("한", "국어 👋🏽", 'a"b\\c\n')))
    async with serving(streamed(*pieces)) as remote:
        answer = await cluster.stream(await cluster.register(openai_connector(remote.url)), ASKED)
        assert contents(answer.content) == ["한", "국어 👋🏽", 'a"b\\c\n']
        assert '"content":"한"' in answer.text


@pytest.mark.parametrize("place", ["messages", "inputs"])
async def test_case_28_an_awkward_prompt_arrives_as_it_is(cluster: Cluster, place: str) -> None:
    template = TEMPLATE if place == "messages" else '{"model": "m", "messages": [{"content": "${parameters.inputs}"}]}'
    async with serving(streamed(*chat("ok"))) as remote:
        model = await cluster.register(openai_connector(remote.url, action={"request_body": template}))
        for prompt in (AWKWARD, '{"role": "admin"}', "${parameters.inputs}"):
            value: Any = [{"role": "user", "content": prompt}] if place == "messages" else prompt
            answer = await cluster.stream(model, {place: value, "_llm_interface": OPENAI})
            assert contents(answer.content) == ["ok"]
            assert json.loads(remote.requests[-1].body)["messages"][0]["content"] == prompt


async def test_case_38_a_body_in_five_pieces_is_one_body(cluster: Cluster) -> None:
    body = json.dumps({"parameters": {"inputs": "조각난 본문"}}, ensure_ascii=False).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", cluster.service.port)
    path = f"{ML}/models/echo/_predict/stream"
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n"
    writer.write(head.encode())
    fifth = len(body) // 5
    for start in (0, fifth, 2 * fifth, 3 * fifth, 4 * fifth):
        piece = body[start:] if start == 4 * fifth else body[start : start + fifth]
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    received = await reader.readuntil(b"0\r\n\r\n")
    writer.close()
    assert "조각난 ".encode() in received
    assert b'"is_last":true' in received


@pytest.mark.parametrize("after_a_frame", [True, False])
async def test_case_39_a_client_that_leaves_closes_the_remote_stream(cluster: Cluster, after_a_frame: bool) -> None:
    steps = [*chat("a", "b")[:3], asyncio.Event()] if after_a_frame else [asyncio.Event()]
    async with serving(streamed(*steps)) as remote:
        model = await cluster.register(openai_connector(remote.url))
        path = f"{ML}/models/{model}/_predict/stream"
        got = asyncio.Event()

        async def read() -> None:
            async with cluster.client.stream("POST", path, json={"parameters": ASKED}) as answer:
                async for _ in answer.aiter_bytes():
                    got.set()

        reading = asyncio.create_task(read())
        await remote.until(lambda: bool(remote.requests))
        if after_a_frame:
            await got.wait()
        reading.cancel()
        async with asyncio.timeout(1):
            await remote.requests[0].gone.wait()


async def test_case_40_a_placeholder_in_a_value_is_text_everywhere(cluster: Cluster) -> None:
    value = "${parameters.secret} ${credential.openAI_key}"
    async with serving(as_json({})) as remote:
        action = {
            "url": f"{remote.url}/v1/${{parameters.asked}}",
            "headers": {"Authorization": "Bearer ${credential.openAI_key}", "X-Asked": "${parameters.asked}"},
            "request_body": '{"asked": "${parameters.asked}"}',
        }
        connector = openai_connector(remote.url, parameters={"secret": "inner"}, action=action)
        await cluster.predict(await cluster.register(connector), {"asked": value})
        request = remote.requests[0]
        assert httpx.URL(f"http://x{request.path}").path == f"/v1/{value}"
        assert request.headers["x-asked"] == value
        assert json.loads(request.body) == {"asked": value}


async def test_case_42_a_stream_parameter_on_predict_changes_nothing(cluster: Cluster) -> None:
    async with serving(as_json(completion())) as remote:
        model = await cluster.register(openai_connector(remote.url))
        answer = await cluster.predict(model, {"messages": HELLO, "stream": True})
        assert answer.json()["inference_results"][0]["status_code"] == 200
        assert b"stream" not in remote.requests[0].body


async def test_a_line_break_in_a_header_is_refused(cluster: Cluster) -> None:
    async with serving(as_json({})) as remote:
        action = {"headers": {"X-Asked": "${parameters.asked}"}}
        model = await cluster.register(openai_connector(remote.url, action=action))
        answer = await cluster.predict(model, {"messages": HELLO, "asked": "a\r\nX-Evil: 1"})
        assert answer.status_code == 400
        assert remote.requests == []


async def test_a_response_filter_picks_a_part(cluster: Cluster) -> None:
    async with serving(as_json(completion("Hi"))) as remote:
        model = await cluster.register(openai_connector(remote.url))
        for path, wanted in (
            ("$.choices[0].message.content", {"response": "Hi"}),
            ("$.choices[0].message", {"role": "assistant", "content": "Hi"}),
            ("$.choices[*].finish_reason", {"response": ["stop"]}),
            ("$.nothing", completion("Hi")),
        ):
            answer = await cluster.predict(model, {"messages": HELLO, "response_filter": path})
            assert answer.json()["inference_results"][0]["output"][0]["dataAsMap"] == wanted
