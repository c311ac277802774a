"""What holds for every route of the wire: silence is filled, and pages call only from configured origins."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest

from tests.running import Service

KEY = {"authorization": "Bearer sk-canary-first"}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/completions": {"prompt": "hi"},
    "/v1/responses": {"input": "hi"},
}


@pytest.mark.parametrize("path", BODIES)
def test_silence_is_filled_with_comments(guarded: Service, path: str) -> None:
    """Case T3: also before the first token, when the head is sent ahead of it."""
    for model in ("slow", "silent"):
        body = {"model": model, "stream": True, **BODIES[path]}
        with httpx.stream("POST", f"{guarded.url}{path}", json=body, headers=KEY) as answer:
            assert answer.status_code == 200
            pings = 0
            for line in answer.iter_lines():
                pings += line == ": ping"
                if pings == 2:
                    break
            assert pings == 2


def test_the_sdk_does_not_see_the_comments(guarded: Service) -> None:
    with openai.OpenAI(base_url=f"{guarded.url}/v1", api_key="sk-canary-first", max_retries=0) as client:
        chunks = client.chat.completions.create(model="slow", messages=[{"role": "user", "content": "hi"}], stream=True)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "One two."
        events = list(client.responses.create(model="slow", input="hi", stream=True))
        assert [event.sequence_number for event in events] == list(range(len(events)))


def test_only_configured_origins_may_call_from_a_page(guarded: Service) -> None:
    url = f"{guarded.url}/v1/chat/completions"

    def preflight(origin: str) -> httpx.Response:
        asked = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
        return httpx.options(url, headers={"origin": origin, **asked})

    allowed = preflight("https://app.example")
    assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, "https://app.example")
    assert "access-control-allow-origin" not in preflight("https://app.example.evil.test").headers
    refused = httpx.post(url, json={}, headers={"origin": "https://app.example"})
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, "https://app.example")
    assert "x-request-id" in refused.headers["access-control-expose-headers"]


def test_no_page_of_another_origin_may_call_by_default(service: Service) -> None:
    answer = httpx.get(f"{service.url}/v1/models", headers={"origin": "https://app.example"})
    assert "access-control-allow-origin" not in answer.headers
