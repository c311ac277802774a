"""`openai` rows in the contract suite; the pattern for every provider that is reached over HTTP."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.config import ProviderRow
from gateway.events import FinishReason
from tests.contract.entry import CANARY_ENV, over_http
from tests.contract.scenario import Refusal, Scenario
from tests.upstreams.byte_server import Answer, Route, json_answer
from tests.upstreams.openai_streams import DONE, call, chunk, usage


def row(url: str) -> ProviderRow:
    """A row whose upstream is at `url`."""
    return ProviderRow(name="openai", type="openai", base_url=f"{url}/v1", api_key_env=CANARY_ENV)


def routes(scenario: Scenario, _url: str) -> Mapping[str, Route]:
    """The fake's answers."""
    return {"/v1/chat/completions": [*map(refused, scenario.refusals), _streamed(scenario)]}


def stream_chunks(scenario: Scenario) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """The chunks before, with and after the pieces of text."""
    counted = usage(scenario.usage.input_tokens, scenario.usage.output_tokens)
    reasoning = [chunk({"reasoning_content": text}) for text in scenario.reasoning]
    calls = [
        chunk({"tool_calls": [call(index, one.arguments, one.call_id, one.name)]})
        for index, one in enumerate(scenario.calls)
    ]
    return (
        [chunk({"role": "assistant", "content": ""}), *reasoning],
        [chunk({"content": piece}) for piece in scenario.pieces],
        [*calls, chunk({}, scenario.reason), chunk(None, usage=counted), DONE],
    )


def _streamed(scenario: Scenario) -> Answer:
    opening, pieces, ending = stream_chunks(scenario)
    return scenario.answer(
        opening=opening,
        pieces=pieces,
        ending=ending,
        failure=b'data: {"error":{"message":"The model broke.","type":"server_error","code":null}}\n\n',
        content_type="text/event-stream",
    )


def refused(refusal: Refusal) -> Answer:
    """An error answer in OpenAI's shape."""
    body = {"error": {"message": refusal.message, "type": "server_error", "param": None, "code": None}}
    headers = {name.replace("-", "_"): value for name, value in refusal.headers.items()}
    return json_answer(body, refusal.status, **headers)


ENTRY = over_http(
    "openai",
    row,
    routes,
    able=frozenset({"reasoning", "tools"}),
    reasons=frozenset({FinishReason.STOP, FinishReason.LENGTH, FinishReason.CONTENT_FILTER}),
)
