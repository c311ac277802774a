"""What a remote service refuses, and what of it the caller sees: its status, its words, never a key."""

from __future__ import annotations

import pytest

from tests.opensearch.cluster import HELLO, KEY, OPENAI, Cluster, as_json, openai_connector, reason
from tests.running import free_port
from tests.upstreams.byte_server import Answer, Framing, serving

ASKED = {"messages": HELLO, "_llm_interface": OPENAI}


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500, 503])
@pytest.mark.parametrize("streaming", [True, False])
async def test_a_remote_status_is_the_answers_status(cluster: Cluster, status: int, streaming: bool) -> None:
    async with serving(as_json({"error": {"message": f"bad key {KEY}"}}, status, Retry_After="7")) as remote:
        model = await cluster.register(openai_connector(remote.url))
        answer = await (cluster.stream if streaming else cluster.predict)(model, ASKED)
        words = 'Error from remote service: {"error": {"message": "bad key [secret]"}}'
        assert reason(answer) == (status, "status_exception", words)
        assert answer.headers.get("retry-after") == "7"
        assert len(remote.requests) == 1


async def test_an_empty_answer_is_said_to_be_one(cluster: Cluster) -> None:
    async with serving(Answer([], 418, framing=Framing.LENGTH), Answer([], 200, framing=Framing.LENGTH)) as remote:
        model = await cluster.register(openai_connector(remote.url))
        words = "Remote service returned error status 418 with empty body"
        assert reason(await cluster.predict(model, ASKED)) == (418, "status_exception", words)
        words = "Remote service returned empty response body"
        assert reason(await cluster.predict(model, ASKED)) == (502, "status_exception", words)


async def test_a_service_that_is_not_there(cluster: Cluster) -> None:
    model = await cluster.register(openai_connector(f"http://127.0.0.1:{free_port()}"))
    assert (await cluster.stream(model, ASKED)).status_code == 503
    assert (await cluster.predict(model, ASKED)).status_code == 503


async def test_a_redirect_is_not_followed(cluster: Cluster) -> None:
    async with serving(as_json({})) as elsewhere, serving(Answer([], 302, {"Location": elsewhere.url})) as remote:
        model = await cluster.register(openai_connector(remote.url))
        for answer in (await cluster.predict(model, ASKED), await cluster.stream(model, ASKED)):
            assert answer.status_code == 502
        assert elsewhere.requests == []


async def test_the_key_is_in_no_log_line(cluster: Cluster) -> None:
    async with serving(as_json({"error": {"message": KEY}}, 401)) as remote:
        await cluster.stream(await cluster.register(openai_connector(remote.url)), ASKED)
    assert KEY not in cluster.service.log.read_text()
