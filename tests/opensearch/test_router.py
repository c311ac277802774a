"""What OpenSearch's router says: content types, query parameters, unknown paths and methods."""

from __future__ import annotations

import pytest

from tests.opensearch.cluster import HELLO, ML, Cluster, reason

STREAM = f"{ML}/models/echo/_predict/stream"
BODY = b'{"parameters":{"inputs":"hi"}}'
JSON = {"content-type": "application/json"}


async def test_case_24_a_wrong_method_is_405_with_the_right_one(cluster: Cluster) -> None:
    answer = await cluster.client.get(f"{STREAM}?pretty=true")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"
    words = f"Incorrect HTTP method for uri [{STREAM}?pretty=true] and method [GET], allowed: [POST]"
    assert answer.json() == {"error": words, "status": 405}
    assert (await cluster.client.get(f"{ML}/models/_register")).headers["allow"] == "POST"
    options = await cluster.client.request("OPTIONS", STREAM)
    assert (options.status_code, options.text, options.headers["allow"]) == (200, "", "POST")


async def test_an_unknown_path_is_400_without_a_status_key(cluster: Cluster) -> None:
    answer = await cluster.client.post(f"{ML}/nothing", content=BODY, headers=JSON)
    assert answer.status_code == 400
    assert answer.json() == {"error": f"no handler found for uri [{ML}/nothing] and method [POST]"}
    answer = await cluster.client.get("/_cluster/state")
    assert answer.json() == {"error": "no handler found for uri [/_cluster/state] and method [GET]"}
    assert (await cluster.client.put("/_cluster/health")).headers["allow"] == "GET"


async def test_case_41_content_types_and_query_parameters(cluster: Cluster) -> None:
    missing = await cluster.client.post(STREAM, content=BODY)
    assert (missing.status_code, missing.json()) == (406, {"error": "Content-Type header is missing", "status": 406})
    wrong = await cluster.client.post(STREAM, content=BODY, headers={"content-type": "text/plain"})
    assert wrong.json() == {"error": "Content-Type header [text/plain] is not supported", "status": 406}
    unknown = await cluster.client.post(f"{STREAM}?foo=1", content=BODY, headers=JSON)
    words = f"request [{STREAM}] contains unrecognized parameter: [foo]"
    assert reason(unknown) == (400, "illegal_argument_exception", words)
    pretty = await cluster.client.post(f"{ML}/models/echo/_predict?pretty=true", content=BODY, headers=JSON)
    assert pretty.status_code == 200
    assert pretty.text.startswith('{\n  "inference_results"')


@pytest.mark.parametrize(
    ("body", "kind"),
    [(b"{", "json_parse_exception"), (b"[]", "parsing_exception"), (b"", "parse_exception")],
)
async def test_a_body_that_is_no_object_is_refused(cluster: Cluster, body: bytes, kind: str) -> None:
    answer = await cluster.client.post(STREAM, content=body, headers=JSON)
    assert reason(answer)[:2] == (400, kind)


async def test_a_body_without_parameters_is_refused(cluster: Cluster) -> None:
    answer = await cluster.client.post(STREAM, json={"messages": HELLO})
    assert reason(answer) == (400, "illegal_argument_exception", "Request body must have parameters")


async def test_every_answer_carries_the_request_id(cluster: Cluster) -> None:
    answer = await cluster.client.get(f"{ML}/connectors/nobody", headers={"x-request-id": "mine"})
    assert answer.headers["x-request-id"] == "mine"
