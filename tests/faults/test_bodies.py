"""Whatever JSON a client posts, on every route: an answer, or a refusal in the wire's shape; never an error of ours."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings

from tests.faults.parsers import bodies, corpus, inputs, keep
from tests.opensearch.in_process import in_process

WHOLE = bool(os.environ.get("POLYWIRE_FAULTS"))
ML = "/_plugins/_ml"
ROUTES: dict[str, str] = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "responses": "/v1/responses",
    "speech": "/v1/audio/speech",
    "client-secrets": "/v1/realtime/client_secrets",
    "predictions": "/v1/predictions",
    "invocations": "/invocations",
    "runtime": "/endpoints/default/invocations-response-stream",
    "lambda": "/lambda",
    "predict": f"{ML}/models/default/_predict",
    "predict-stream": f"{ML}/models/default/_predict/stream",
    "connectors": f"{ML}/connectors/_create",
    "models": f"{ML}/models/_register",
    "searches": f"{ML}/models/_search",
}
CORPUS_OF = {"lambda": "invocations", "runtime": "invocations", "predict-stream": "predict"}
UNKNOWN = frozenset({404, 405})
EXAMPLES = 800 if WHOLE else 20


@pytest.fixture(scope="module")
def posting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Posts a body to a path of the application and gives the answer; an exception that leaves it is raised."""
    folder = tmp_path_factory.mktemp("bodies")
    with asyncio.Runner() as runner:
        opened = in_process(folder)
        client = runner.run(opened.__aenter__())
        headers = {"content-type": "application/json"}
        yield lambda path, data: runner.run(client.post(path, content=data, headers=headers))
        runner.run(opened.__aexit__(None, None, None))


def _right(answer: httpx.Response) -> None:
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        body = answer.json()
        assert any(body.get(name) for name in ("error", "detail", "message", "Message")), body
        assert "Traceback" not in answer.text
        assert len(answer.text) < 5000


@pytest.mark.parametrize("route", ROUTES)
def test_what_is_kept_is_answered_or_refused(posting: Any, route: str) -> None:
    for data in corpus(CORPUS_OF.get(route, route)):
        _right(posting(ROUTES[route], data))


@pytest.mark.timeout(600 if WHOLE else 120)
@pytest.mark.parametrize("route", ROUTES)
def test_any_json_is_answered_or_refused(posting: Any, route: str) -> None:
    parser = CORPUS_OF.get(route, route)

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=not WHOLE,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(bodies(parser) | inputs(parser))
    def post(data: bytes) -> None:
        try:
            _right(posting(ROUTES[route], data))
        except BaseException:
            keep(parser, data)
            raise

    post()
