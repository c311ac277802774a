"""SageMaker: what containers write -> events, however PayloadParts cut it."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest

from adapters.sagemaker_dialects import (
    ContainerDecoder,
)
from adapters.special_tokens import SPECIAL_TOKENS, SpecialTokens
from gateway.errors import (
    GatewayError,
    InvalidRequest,
    RateLimited,
    Truncated,
    UpstreamError,
)
from gateway.events import FinishReason, ReasoningDelta, ToolCallDelta, Usage
from gateway.request import (
    ChatRequest,
    Role,
    text_message,
)
from tests.aws.account import at, boto_client, events, finished, read_all, row, text_of
from tests.upstreams.aws_fake import (
    LMI_CHAT,
    LMI_LINES,
    SENTENCE,
    TGI_2,
    TGI_3,
    TGI_GENERATE,
    VLLM,
    WORDS,
    chat_chunk,
    event,
    generate_event,
    json_line,
    part,
    parts,
    stream,
)
from tests.upstreams.byte_server import ByteServer, serving
from tests.upstreams.cutting import one_byte_each

BODIES = {
    "tgi 2.0.1": (TGI_2, FinishReason.STOP, None),
    "tgi 3": (TGI_3, FinishReason.STOP, Usage(9, 5)),
    "vllm": (VLLM, FinishReason.LENGTH, None),
    "tgi generate": (TGI_GENERATE, FinishReason.STOP, Usage(9, 5)),
    "lmi lines": (LMI_LINES, FinishReason.STOP, Usage(0, 5)),
    "lmi chat": (LMI_CHAT, FinishReason.STOP, None),
    "crlf": (TGI_3.replace(b"\n", b"\r\n"), FinishReason.STOP, Usage(9, 5)),
    "no last line end": (LMI_LINES.rstrip(), FinishReason.STOP, Usage(0, 5)),
}
named = pytest.mark.parametrize(("body", "reason", "usage"), BODIES.values(), ids=BODIES)


def decode(pieces: list[bytes]) -> tuple[list[Any], GatewayError | None]:
    """What the adapter makes of these PayloadParts, without a socket."""
    decoder = ContainerDecoder(row("sagemaker", None))
    seen: list[Any] = []
    try:
        for piece in pieces:
            for delta in decoder.feed(piece):
                seen.append(delta)
        for delta in decoder.end():
            seen.append(delta)
        seen.append(decoder.finish())
    except GatewayError as error:
        return seen, error
    return seen, None


@named
def test_every_container_is_read_whole_in_any_cut(body: bytes, reason: FinishReason, usage: Usage | None) -> None:
    random.seed(1)
    cuts = [[body], one_byte_each(body)]
    for _ in range(20):
        rest, pieces = body, []
        while rest:
            size = random.randint(1, 7)
            pieces.append(rest[:size])
            rest = rest[size:]
        cuts.append(pieces)
    for pieces in cuts:
        seen, error = decode(pieces)
        assert error is None
        assert text_of(seen) == SENTENCE
        assert (finished(seen).reason, finished(seen).usage) == (reason, usage)


def test_parts_that_do_not_line_up_with_events() -> None:
    first, second, third = chat_chunk("안녕"), chat_chunk("하세요"), chat_chunk("", "stop")
    middle = second.index("세".encode()) + 1
    seen, error = decode([first + second[:9], second[9:middle], second[middle:], b"\n", third[:-1], b"\n"])
    assert (text_of(seen), error) == ("안녕하세요", None)


@named
def test_cut_after_every_byte_is_never_a_success_before_the_marker(
    body: bytes, reason: FinishReason, usage: Usage | None
) -> None:
    markers = (b'"finish_reason":"', b'"finish_reason": "', b"[DONE]")
    for size in range(len(body)):
        seen, error = decode([body[:size]])
        assert SENTENCE.startswith(text_of(seen)), size
        if not any(marker in body[:size] for marker in markers):
            assert isinstance(error, UpstreamError), size
        elif error is None:
            assert text_of(seen) == SENTENCE


def test_an_error_in_any_shape_wins_over_a_later_done() -> None:
    done = b"data: [DONE]\n\n"
    shapes = {
        b'data: {"error":{"message":"too long","http_status_code":422}}\n\n' + done: InvalidRequest,
        b'data:{"error":"Input validation error","error_type":"validation"}\n\n': InvalidRequest,
        b'data:{"error":"Model is overloaded","error_type":"overloaded"}\n\n': RateLimited,
        b'data:{"error":"Request failed","error_type":"generation"}\n\n': UpstreamError,
        b'{"error": "Error invoking SageMaker endpoint"}': UpstreamError,
        b'{"error": {"message": "boom"}}\n' + done: UpstreamError,
    }
    for shape, kind in shapes.items():
        seen, error = decode([chat_chunk("so far"), shape])
        assert text_of(seen) == "so far"
        assert isinstance(error, kind), shape


def test_an_answer_that_ends_with_an_error_is_a_failure() -> None:
    generate = json_line({"token": {"text": ""}, "generated_text": "x", "details": {"finish_reason": "error"}})
    for body in (generate, chat_chunk("", "error")):
        _, error = decode([body])
        assert isinstance(error, UpstreamError)


def test_an_answer_that_is_no_json_is_a_failure() -> None:
    for body in (b"data: <html>\n\n", b"{not json}\n", b'data: {"choices": [\n\n', b'data: "a string"\n\n'):
        _, error = decode([body, chat_chunk("", "stop")])
        assert isinstance(error, UpstreamError), body


def test_a_line_without_end_is_refused_before_it_fills_the_memory() -> None:
    _, error = decode([b"data: " + b"x" * 2**20] + [b"x" * 2**20] * 10)
    assert isinstance(error, UpstreamError)
    assert "longer than" in error.message


@pytest.mark.parametrize("weights", ["/opt/ml/model", "meta-llama/Meta-Llama-3-8B-Instruct"])
def test_where_the_weights_come_from_changes_nothing(weights: str) -> None:
    """A container that loads them from S3 names their folder in its chunks, one that loads from a hub their name."""
    said = TGI_2.replace(b"/opt/ml/model", weights.encode())
    assert said.count(weights.encode()) == len(WORDS) + 2
    seen, error = decode([said])
    assert (text_of(seen), error) == (SENTENCE, None)


def test_generated_text_alone_is_the_whole_answer() -> None:
    for body in (b'[{"generated_text":"hi"}]', b'{"generated_text":"hi"}\n'):
        seen, error = decode([body])
        assert (text_of(seen), error) == ("hi", None)
    seen, _ = decode([generate_event("hi"), generate_event("!", whole="hi!")])
    assert text_of(seen) == "hi!"
    assert finished(seen).reason is FinishReason.STOP


def test_unicode_line_separators_are_text() -> None:
    line = 'data: {"choices":[{"delta":{"content":"a\u2028b\u0085c"},"finish_reason":"stop"}]}\n\n'
    assert text_of(decode([line.encode()])[0]) == "a\u2028b\u0085c"


def test_an_event_of_several_data_lines_is_joined() -> None:
    seen, _ = decode([b'data: {"choices":[{"delta":\ndata: {"content":"x"},"finish_reason":"stop"}]}\n\n'])
    assert text_of(seen) == "x"


def test_reasoning_and_tool_calls_pass_through() -> None:
    calls = [{"index": n, "id": f"c{n}", "function": {"name": "f", "arguments": "{}"}} for n in (0, 1)]
    body = chat_chunk(None, reasoning_content="hm") + chat_chunk(None, "tool_calls", tool_calls=calls)
    seen, _ = decode([body])
    assert ReasoningDelta("hm") in seen
    assert [d for d in seen if isinstance(d, ToolCallDelta)] == [ToolCallDelta(0, "{}"), ToolCallDelta(1, "{}")]
    assert finished(seen).reason is FinishReason.TOOL_CALLS


@pytest.mark.parametrize("token", sorted(SPECIAL_TOKENS))
def test_special_tokens_are_taken_out_whole_or_in_pieces(token: str) -> None:
    for cut in range(1, len(token)):
        for pieces in ([token], [token[:cut], token[cut:]], [token[:1], token[1:cut], token[cut:]]):
            seen, _ = decode([chat_chunk(piece) for piece in ["Hi", *filter(None, pieces)]] + [chat_chunk("", "stop")])
            assert text_of(seen) == "Hi"


@pytest.mark.parametrize(
    "pieces",
    [
        ["the token </s> ends it"],
        ["the token </", "s", "> ends it"],
        ["a <", " b <|", "x"],
        ["ends with <|eot"],
        ["<", "<|eot_id|", "?"],
        ["say </", "s>", ", I said <"],
        ["<|eot_id|><|im_end|>!"],
    ],
)
def test_text_that_only_looks_like_a_special_token_is_kept(pieces: list[str]) -> None:
    special = SpecialTokens()
    assert "".join([*map(special.feed, pieces), special.end()]) == "".join(pieces)


def test_an_answer_may_end_with_what_looks_like_a_beginning() -> None:
    seen, error = decode([chat_chunk("1 <"), chat_chunk("", "stop")])
    assert (text_of(seen), error) == ("1 <", None)


@pytest.mark.parametrize(
    ("of_row", "of_model", "key"),
    [(None, None, "messages"), ("tgi", None, "inputs"), ("tgi", "openai", "messages"), (None, "lmi", "inputs")],
)
async def test_the_models_dialect_goes_before_the_providers(of_row: Any, of_model: Any, key: str) -> None:
    options = {"dialect": of_model} if of_model else {}
    async with serving(stream(part(TGI_3))) as server, at(server, "sagemaker", dialect=of_row) as sagemaker:
        await read_all(events(sagemaker, options=options))
    (request,) = server.requests
    assert key in json.loads(request.body)


async def test_the_endpoint_and_its_component_are_named() -> None:
    async with serving(stream(part(VLLM))) as server, at(server, "sagemaker") as sagemaker:
        request = ChatRequest("my-endpoint/my-component", (text_message(Role.USER, "hi"),))
        await read_all(sagemaker.stream(request))
    (received,) = server.requests
    assert received.path == "/endpoints/my-endpoint/invocations-response-stream"
    assert received.headers["x-amzn-sagemaker-inference-component"] == "my-component"
    assert "x-amzn-sagemaker-accept" in received.headers
    assert "/us-east-1/sagemaker/aws4_request" in received.headers["authorization"]


async def test_aws_own_client_reads_the_fake_and_sees_the_same_bytes() -> None:
    async with (
        serving(stream(*parts(TGI_2, 33), event("surprise", {}))) as server,
        at(server, "sagemaker") as sagemaker,
    ):
        seen, error = await read_all(events(sagemaker))
        theirs = await asyncio.to_thread(ask_with_boto, server)
    assert error is None
    assert theirs == TGI_2
    assert text_of(seen) == text_of(decode([theirs])[0]) == "".join(WORDS)


def ask_with_boto(server: ByteServer) -> bytes:
    client = boto_client("sagemaker-runtime", server)
    answered = client.invoke_endpoint_with_response_stream(EndpointName="my-endpoint", Body=b"{}")
    data = b"".join(found["PayloadPart"]["Bytes"] for found in answered["Body"])
    client.close()
    return data


async def test_a_clean_end_without_a_marker_is_truncated() -> None:
    async with serving(stream(part(chat_chunk("Hel")))) as server, at(server, "sagemaker") as sagemaker:
        seen, error = await read_all(events(sagemaker))
    assert text_of(seen) == "Hel"
    assert isinstance(error, Truncated)
