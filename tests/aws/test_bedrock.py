"""Bedrock: frames -> events, and what goes out on the wire."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from adapters.converse import REDACTED
from adapters.converse_stream import ConverseDecoder
from adapters.event_stream import FrameDecoder
from gateway.errors import GatewayError, InvalidRequest, Truncated, UpstreamError
from gateway.events import (
    FinishReason,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from gateway.request import ChatRequest, Role, text_message
from tests.aws.account import at, boto_client, events, finished, read_all, text_of
from tests.upstreams.aws_fake import (
    CONVERSE_TEXT,
    CONVERSE_TOOLS,
    MESSAGE_START,
    block_stop,
    event,
    message_stop,
    metadata,
    reasoning_delta,
    stream,
    text_delta,
    tool_delta,
    tool_start,
)
from tests.upstreams.byte_server import ByteServer, serving


def decode(data: bytes) -> tuple[list[Any], GatewayError | None]:
    """What the adapter makes of a body, without a socket."""
    frames, decoder = FrameDecoder("bedrock"), ConverseDecoder("bedrock")
    seen: list[Any] = []
    try:
        for frame in frames.feed(data):
            seen.extend(decoder.feed(frame))
        frames.end()
        seen.append(decoder.finish())
    except GatewayError as error:
        return seen, error
    return seen, None


def test_reasoning_text_and_two_tool_calls_keep_apart() -> None:
    seen, error = decode(b"".join(CONVERSE_TOOLS))
    assert error is None
    assert seen[:-1] == [
        ReasoningDelta("Need the weather."),
        ReasoningDelta("", "c2ln"),
        TextDelta("안녕"),
        TextDelta(" 🌍"),
        ToolCallStart(0, "tooluse_kZJMlvQmRJ6eAyJE5GIl7Q", "get_weather"),
        ToolCallDelta(0, '{"city":'),
        ToolCallDelta(0, ' "Seoul"}'),
        ToolCallStart(1, "tooluse_now", "get_time"),
        ToolCallDelta(1, "{}"),
    ]
    assert finished(seen).reason is FinishReason.TOOL_CALLS


def test_interleaved_blocks_are_told_apart_by_their_index() -> None:
    frames = [
        tool_start(4, "a", "f"),
        tool_start(7, "b", "g"),
        tool_delta(4, '{"x":'),
        tool_delta(7, '{"y":'),
        tool_delta(4, "1}"),
        tool_delta(7, "2}"),
        message_stop("tool_use"),
    ]
    seen, _ = decode(b"".join(frames))
    arguments = ["".join(d.arguments for d in seen if isinstance(d, ToolCallDelta) and d.index == n) for n in (0, 1)]
    assert [json.loads(text) for text in arguments] == [{"x": 1}, {"y": 2}]


def test_a_call_without_arguments_or_block_stop_still_gets_its_braces() -> None:
    seen, _ = decode(tool_start(0, "a", "f") + tool_delta(0, "") + message_stop("tool_use"))
    assert seen[:-1] == [ToolCallStart(0, "a", "f"), ToolCallDelta(0, "{}")]


def test_a_signature_in_pieces_is_joined_and_redacted_reasoning_is_kept() -> None:
    frames = [
        reasoning_delta(0, text="hm"),
        reasoning_delta(0, signature="ab"),
        reasoning_delta(0, signature="cd"),
        block_stop(0),
        reasoning_delta(1, redactedContent="YmxvYg=="),
        message_stop(),
    ]
    seen, _ = decode(b"".join(frames))
    expected = [ReasoningDelta("hm"), ReasoningDelta("", "abcd"), ReasoningDelta("", REDACTED + "YmxvYg==")]
    assert seen[:-1] == expected


def test_unknown_events_and_delta_members_count_for_nothing() -> None:
    unknown = event("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"hologram": {}}})
    seen, error = decode(MESSAGE_START + event("surprise", {"a": 1}) + unknown + text_delta("x") + message_stop())
    assert (text_of(seen), error) == ("x", None)


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("end_turn", FinishReason.STOP),
        ("stop_sequence", FinishReason.STOP),
        ("max_tokens", FinishReason.LENGTH),
        ("model_context_window_exceeded", FinishReason.LENGTH),
        ("tool_use", FinishReason.TOOL_CALLS),
        ("guardrail_intervened", FinishReason.CONTENT_FILTER),
        ("content_filtered", FinishReason.CONTENT_FILTER),
    ],
)
def test_stop_reasons(word: str, reason: FinishReason) -> None:
    seen, _ = decode(text_delta("x") + message_stop(word) + metadata())
    assert finished(seen).reason is reason


@pytest.mark.parametrize("word", ["malformed_model_output", "malformed_tool_use", "a_reason_of_2030", ""])
def test_stop_reasons_that_are_no_success_fail(word: str) -> None:
    seen, error = decode(text_delta("x") + message_stop(word) + metadata())
    assert text_of(seen) == "x"
    assert isinstance(error, UpstreamError)


def test_cached_tokens_are_part_of_the_input() -> None:
    seen, _ = decode(message_stop() + metadata(10, 5, cacheReadInputTokens=100, cacheWriteInputTokens=7))
    assert finished(seen).usage == Usage(input_tokens=117, output_tokens=5, cached_tokens=100)


def test_a_stream_without_message_stop_is_truncated() -> None:
    _, error = decode(MESSAGE_START + text_delta("x") + block_stop(0) + metadata())
    assert isinstance(error, Truncated)


@pytest.mark.parametrize("payload", [{"contentBlockIndex": 9, "delta": {"toolUse": {"input": "{}"}}}])
def test_arguments_of_no_call_are_a_fault(payload: dict[str, Any]) -> None:
    _, error = decode(event("contentBlockDelta", payload))
    assert isinstance(error, UpstreamError)


async def test_the_request_is_signed_for_the_path_that_is_sent() -> None:
    """AWS's own client sends the same path and, but for the time, the same headers."""
    model = "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-3:0"
    async with serving(stream(*CONVERSE_TEXT)) as server, at(server, "bedrock") as bedrock:
        _, error = await read_all(bedrock.stream(ChatRequest(model, (text_message(Role.USER, "hi"),))))
        await asyncio.to_thread(ask_with_boto, server, model)
    ours, theirs = server.requests
    assert error is None
    assert ours.path == theirs.path
    assert "%3A" in ours.path
    assert "%2F" in ours.path
    assert json.loads(ours.body) == json.loads(theirs.body)
    assert signed_headers(ours.headers) == signed_headers(theirs.headers)
    assert ours.headers["x-amz-security-token"] == theirs.headers["x-amz-security-token"]


def ask_with_boto(server: ByteServer, model: str) -> list[dict[str, Any]]:
    client = boto_client("bedrock-runtime", server)
    messages = [{"role": "user", "content": [{"text": "hi"}]}]
    answered = list(client.converse_stream(modelId=model, messages=messages)["stream"])
    client.close()
    return answered


def signed_headers(headers: dict[str, str]) -> list[str]:
    fields = headers["authorization"].split(", ")
    return [field for field in fields if not field.startswith("Signature=")]


@pytest.mark.parametrize("frames", [CONVERSE_TEXT, CONVERSE_TOOLS])
async def test_aws_own_client_reads_the_fake_and_sees_the_same_answer(frames: list[bytes]) -> None:
    async with serving(stream(*frames)) as server, at(server, "bedrock") as bedrock:
        seen, _ = await read_all(events(bedrock))
        theirs = await asyncio.to_thread(ask_with_boto, server, "claude")
    deltas = [found["contentBlockDelta"]["delta"] for found in theirs if "contentBlockDelta" in found]
    assert text_of(seen) == "".join(delta.get("text", "") for delta in deltas)
    inputs = "".join(delta["toolUse"]["input"] for delta in deltas if "toolUse" in delta)
    assert "".join(d.arguments for d in seen if isinstance(d, ToolCallDelta)).removesuffix("{}") == inputs
    usage = next(found["metadata"]["usage"] for found in theirs if "metadata" in found)
    assert finished(seen).usage == Usage(usage["inputTokens"], usage["outputTokens"])


async def test_a_blank_conversation_never_reaches_bedrock() -> None:
    async with serving(stream(*CONVERSE_TEXT)) as server, at(server, "bedrock") as bedrock:
        _, error = await read_all(events(bedrock, " \n"))
    assert isinstance(error, InvalidRequest)
    assert server.requests == []
