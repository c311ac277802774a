"""How a stream ends: in one last frame or one error frame, whatever the remote service does."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.opensearch.cluster import (
    HELLO,
    OPENAI,
    Cluster,
    chat,
    chunk,
    contents,
    data_map,
    frames,
    openai_connector,
    streamed,
)
from tests.upstreams.byte_server import Act, serving

ASKED = {"messages": HELLO, "_llm_interface": OPENAI}


async def test_case_25_an_error_midway_is_one_frame_and_the_end(cluster: Cluster) -> None:
    error = b'data: {"error": {"message": "Test error message"}}\n\n'
    async with serving(streamed(chunk({"content": "Hi"}), error, chunk({"content": "lost"}))) as remote:
        answer = await cluster.stream(await cluster.register(openai_connector(remote.url)), ASKED)
        assert answer.status_code == 200
        text, failure = frames(answer.content)
        assert data_map(text) == {"content": "Hi", "is_last": False}
        assert list(failure) == ["error"]
        assert "Test error message" in failure["error"]
        assert b'data: {"error": "' in answer.content


@pytest.mark.parametrize("end", ["length", "content_filter", "stop"])
async def test_case_27_every_end_is_a_last_frame(cluster: Cluster, end: str) -> None:
    async with serving(streamed(*chat("cut", reason=end))) as remote:
        answer = await cluster.stream(await cluster.register(openai_connector(remote.url)), ASKED)
        assert contents(answer.content) == ["cut"]


async def test_case_35_an_error_text_of_any_kind_is_valid_json(cluster: Cluster) -> None:
    text = 'a "quote" and \\"another\\", new\nline, tab\t, return\r, back\\slash'
    error = f"data: {json.dumps({'error': {'message': text}})}\n\n".encode()
    async with serving(streamed(chunk({"content": "Hi"}), error)) as remote:
        answer = await cluster.stream(await cluster.register(openai_connector(remote.url)), ASKED)
        assert text in frames(answer.content)[-1]["error"]


@pytest.mark.parametrize("cut", [True, False])
async def test_case_36_a_truncated_answer_is_one_error_frame_at_once(cluster: Cluster, cut: bool) -> None:
    async with serving(
        streamed(chunk({"content": "a"}), chunk({"content": "b"}), *([Act.DROP] if cut else []))
    ) as remote:
        model = await cluster.register(openai_connector(remote.url))
        async with asyncio.timeout(2):
            answer = await cluster.stream(model, ASKED)
        *texts, failure = frames(answer.content)
        assert [data_map(frame)["content"] for frame in texts] == ["a", "b"]
        assert list(failure) == ["error"]


async def test_case_37_tool_calls_end_in_a_last_frame(cluster: Cluster) -> None:
    def call(index: int, **function: str) -> dict[str, Any]:
        named = {"id": f"call_{index}", "type": "function"} if "name" in function else {}
        return {"tool_calls": [{"index": index, **named, "function": function}]}

    deltas = [call(0, name="f", arguments=""), call(0, arguments='{"a":1}'), call(1, name="g", arguments="")]
    async with serving(streamed(*map(chunk, deltas), chunk({}, "tool_calls"), b"data: [DONE]\n\n")) as remote:
        answer = await cluster.stream(await cluster.register(openai_connector(remote.url)), ASKED)
        *pieces, whole = [json.loads(text) for text in contents(answer.content)]
        assert pieces == [
            [{"index": 0, "id": "call_0", "type": "function", "function": {"name": "f", "arguments": ""}}],
            [{"index": 0, "function": {"arguments": '{"a":1}'}}],
            [{"index": 1, "id": "call_1", "type": "function", "function": {"name": "g", "arguments": ""}}],
        ]
        calls = [
            {"id": "call_0", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
            {"id": "call_1", "type": "function", "function": {"name": "g", "arguments": "{}"}},
        ]
        assert whole == {"choices": [{"message": {"tool_calls": calls}, "finish_reason": "tool_calls"}]}
