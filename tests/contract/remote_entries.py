"""`replicate`, `cog` and `opensearch` rows in the contract suite."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gateway.config import ProviderRow
from gateway.events import FinishReason
from tests.contract.entry import CANARY_ENV, over_http
from tests.contract.scenario import Refusal, Scenario
from tests.upstreams.byte_server import Answer, Route, json_answer
from tests.upstreams.replicate_fake import DONE, FAILED, ID, output

STOP = frozenset({FinishReason.STOP})
"""None of the three says why an answer ended."""
SSE = "text/event-stream"


def _row(kind: str, **secrets: str) -> Any:
    return lambda url: ProviderRow.model_validate({"name": kind, "type": kind, "base_url": url, **secrets})


def _refused(refusal: Refusal, body: Mapping[str, Any]) -> Answer:
    headers = {name.replace("-", "_"): value for name, value in refusal.headers.items()}
    return json_answer(body, refusal.status, **headers)


def _metrics(scenario: Scenario) -> dict[str, int]:
    return {"input_token_count": scenario.usage.input_tokens, "output_token_count": scenario.usage.output_tokens}


def _replicate(scenario: Scenario, url: str) -> Mapping[str, Route]:
    streamed = scenario.answer(
        opening=[],
        pieces=[output(number, piece) for number, piece in enumerate(scenario.pieces)],
        ending=[DONE],
        failure=FAILED,
        content_type=SSE,
    )
    prediction = {
        "id": ID,
        "model": "owner/name",
        "version": "hidden",
        "input": {},
        "status": "starting",
        "output": None,
        "urls": {"stream": f"{url}/v1/streams/3kq9"},
        "metrics": _metrics(scenario),
    }
    refusals = [
        _refused(refusal, {"detail": refusal.message, "status": refusal.status}) for refusal in scenario.refusals
    ]
    return {
        "/v1/streams/3kq9": streamed,
        "/v1/models/owner/name/predictions": [*refusals, json_answer(prediction, 201)],
        f"/v1/predictions/{ID}": json_answer({**prediction, "status": "processing"}),
        f"/v1/predictions/{ID}/cancel": json_answer({**prediction, "status": "canceled"}),
    }


def _cog(scenario: Scenario, _url: str) -> Mapping[str, Route]:
    streamed = scenario.answer(
        opening=[_event("start", {"id": "p", "status": "processing"})],
        pieces=[_event("output", {"chunk": piece, "index": index}) for index, piece in enumerate(scenario.pieces)],
        ending=[_event("completed", {"id": "p", "status": "succeeded", "metrics": _metrics(scenario)})],
        failure=_event("completed", {"id": "p", "status": "failed", "error": "The model broke."}),
        content_type=SSE,
    )
    refusals = [_refused(refusal, {"error": refusal.message, "status": "failed"}) for refusal in scenario.refusals]
    return {"/predictions/????????????????????????????????": [*refusals, streamed], "*/cancel": json_answer({})}


def _event(name: str, data: Mapping[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def _opensearch(scenario: Scenario, _url: str) -> Mapping[str, Route]:
    streamed = scenario.answer(
        opening=[],
        pieces=[_frame(piece) for piece in scenario.pieces],
        ending=[_frame("", last=True)],
        failure=b'data: {"error": "Error from remote service: "broken" JSON"}\n\n',
        content_type=SSE,
    )
    refusals = [
        _refused(refusal, {"error": {"type": "status_exception", "reason": refusal.message}, "status": refusal.status})
        for refusal in scenario.refusals
    ]
    model = {"name": "m", "algorithm": "REMOTE", "connector": {"protocol": "http", "parameters": {}}}
    return {
        "/_plugins/_ml/models/m/_predict/stream": [*refusals, streamed],
        "/_plugins/_ml/models/m": json_answer(model),
    }


def _frame(content: str, *, last: bool = False) -> bytes:
    response = {"name": "response", "dataAsMap": {"content": content, "is_last": last}}
    return _data({"inference_results": [{"output": [response]}]})


def _data(value: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


REPLICATE = over_http(
    "replicate",
    _row("replicate", api_key_env=CANARY_ENV),
    _replicate,
    reasons=STOP,
    # A prediction whose creation failed in any other way may have been made, and billed.
    tried_again=(429, 429),
    model="owner/name",
)
COG = over_http("cog", _row("cog", api_key_env=CANARY_ENV), _cog, reasons=STOP)
OPENSEARCH = over_http(
    "opensearch",
    _row("opensearch", username_env="CONTRACT_USER", password_env=CANARY_ENV),
    _opensearch,
    reasons=STOP,
    usage=None,
)
