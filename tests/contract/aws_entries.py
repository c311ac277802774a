"""`bedrock` and `sagemaker` rows in the contract suite, SageMaker in each dialect."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gateway.config import Dialect, ProviderRow
from gateway.events import FinishReason, Usage
from tests.contract.entry import ProviderEntry, over_http
from tests.contract.openai_entry import stream_chunks
from tests.contract.scenario import USAGE, Refusal, Scenario
from tests.upstreams import aws_fake
from tests.upstreams.byte_server import Answer, Route

CODES = {
    400: "ValidationException",
    401: "UnrecognizedClientException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    429: "ThrottlingException",
    500: "InternalServerException",
    503: "ServiceUnavailableException",
}
STOP_REASONS = {
    FinishReason.STOP: "end_turn",
    FinishReason.LENGTH: "max_tokens",
    FinishReason.TOOL_CALLS: "tool_use",
    FinishReason.CONTENT_FILTER: "content_filtered",
}
Events = tuple[Sequence[bytes], Sequence[bytes], Sequence[bytes]]
"""What a container says before, with and after the pieces of text."""


def _row(kind: str, **more: Any) -> Callable[[str], ProviderRow]:
    return lambda url: ProviderRow.model_validate(
        {"name": kind, "type": kind, "region": "us-east-1", "endpoint_url": url, **more}
    )


def refused(refusal: Refusal) -> Answer:
    """An error answer in AWS's shape."""
    headers = {name.replace("-", "_"): value for name, value in refusal.headers.items()}
    code = CODES.get(refusal.status, "SomethingElse")
    return aws_fake.refusal(refusal.status, code, {"message": refusal.message}, **headers)


def _converse(scenario: Scenario, _url: str) -> Mapping[str, Route]:
    reasoning = [aws_fake.reasoning_delta(0, text=text) for text in scenario.reasoning]
    tools = [
        frame
        for index, call in enumerate(scenario.calls, start=2)
        for frame in (
            aws_fake.tool_start(index, call.call_id, call.name),
            aws_fake.tool_delta(index, call.arguments),
            aws_fake.block_stop(index),
        )
    ]
    counted = aws_fake.metadata(scenario.usage.input_tokens, scenario.usage.output_tokens)
    answer = scenario.answer(
        opening=[aws_fake.MESSAGE_START, *reasoning],
        pieces=[aws_fake.text_delta(piece, 1) for piece in scenario.pieces],
        ending=[aws_fake.block_stop(1), *tools, aws_fake.message_stop(STOP_REASONS[scenario.reason]), counted],
        failure=aws_fake.exception("internalServerException", {"message": "The model broke."}),
        content_type=aws_fake.EVENT_STREAM["Content-Type"],
    )
    return {"/model/m/converse-stream": [*map(refused, scenario.refusals), answer]}


def _invoked(events: Callable[[Scenario], Events]) -> Callable[[Scenario, str], Mapping[str, Route]]:
    def routes(scenario: Scenario, _url: str) -> Mapping[str, Route]:
        opening, pieces, ending = ([aws_fake.part(event) for event in group] for group in events(scenario))
        answer = scenario.answer(
            opening=opening,
            pieces=pieces,
            ending=ending,
            failure=aws_fake.exception("InternalStreamFailure", {"message": "The container broke."}),
            content_type=aws_fake.EVENT_STREAM["Content-Type"],
        )
        return {"/endpoints/m/invocations-response-stream": [*map(refused, scenario.refusals), answer]}

    return routes


def _tgi(scenario: Scenario) -> Events:
    details = {
        "finish_reason": "eos_token" if scenario.reason is FinishReason.STOP else "length",
        "generated_tokens": scenario.usage.output_tokens,
        "input_length": scenario.usage.input_tokens,
    }
    last = {"token": {"text": "</s>", "special": True}, "generated_text": scenario.text, "details": details}
    return [], [_event({"token": {"text": piece, "special": False}}) for piece in scenario.pieces], [_event(last)]


def _event(value: Mapping[str, Any]) -> bytes:
    return b"data:" + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def _lmi(scenario: Scenario) -> Events:
    details = {
        "finish_reason": "eos_token" if scenario.reason is FinishReason.STOP else "length",
        "generated_tokens": scenario.usage.output_tokens,
        "inputs": None,
    }
    last = {"token": {"text": "</s>"}, "generated_text": scenario.text, "details": details}
    pieces = [aws_fake.json_line({"token": {"text": piece, "log_prob": -0.1}}) for piece in scenario.pieces]
    return [], pieces, [aws_fake.json_line(last)]


def _sagemaker(dialect: Dialect, events: Callable[[Scenario], Events], **more: Any) -> ProviderEntry:
    return over_http(f"sagemaker-{dialect}", _row("sagemaker", dialect=dialect), _invoked(events), **more)


BEDROCK = over_http(
    "bedrock",
    _row("bedrock"),
    _converse,
    able=frozenset({"reasoning", "tools"}),
    reasons=frozenset({FinishReason.STOP, FinishReason.LENGTH, FinishReason.CONTENT_FILTER}),
)
SAGEMAKER = (
    _sagemaker("openai", stream_chunks, able=frozenset({"reasoning", "tools"})),
    _sagemaker("tgi", _tgi),
    # LMI does not tell how long the prompt was.
    _sagemaker("lmi", _lmi, usage=Usage(0, USAGE.output_tokens)),
)
