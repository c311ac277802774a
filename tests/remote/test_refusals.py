"""A refusal or a useless answer before the first token is a GatewayError with a sentence, and no secret is in it."""

from __future__ import annotations

import gzip
import logging
import traceback
from collections.abc import Iterator

import pytest

from adapters.http import LONGEST_BODY
from gateway.config import ProviderType
from gateway.errors import (
    GatewayError,
    InvalidRequest,
    NotFound,
    RateLimited,
    UpstreamError,
    UpstreamUnavailable,
)
from tests.remote.upstreams import EVENT_STREAM, KEY, KINDS, outcome, upstream
from tests.upstreams.byte_server import Answer, Framing, json_answer
from tests.upstreams.replicate_fake import ID

every_kind = pytest.mark.parametrize("kind", KINDS)
NEVER = Answer(status=500)


def refusal(kind: str, status: int, message: str, headers: dict[str, str] | None = None) -> Answer:
    """An error answer in the vendor's own shape."""
    if kind == "opensearch":
        error = {"type": "status_exception", "reason": message}
        return json_answer({"error": {"root_cause": [error], **error}, "status": status}, status, **(headers or {}))
    if kind == "cog" and status == 422:
        return json_answer({"detail": [{"loc": ["body", "input"], "msg": message, "type": "value_error"}]}, status)
    key = "detail" if kind == "replicate" else "error"
    return json_answer({key: message, "status": "failed" if kind == "cog" else status}, status, **(headers or {}))


@every_kind
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, InvalidRequest),
        (401, UpstreamError),
        (403, UpstreamError),
        (404, NotFound),
        (422, InvalidRequest),
        (429, RateLimited),
        (500, UpstreamError),
        (503, UpstreamUnavailable),
    ],
)
async def test_a_refusal_has_its_own_error(kind: ProviderType, status: int, expected: type[GatewayError]) -> None:
    answer = refusal(kind, status, "the vendor's sentence", {"retry-after": "7"})
    async with upstream(kind, NEVER, refusal=answer) as remote:
        with pytest.raises(expected) as caught:
            async with remote.opened():
                pass
    assert caught.value.provider == "far"
    if status in (401, 403):
        assert caught.value.status == 502
    else:
        assert "the vendor's sentence" in caught.value.message
    if status in (429, 503):
        assert caught.value.retry_after == 7


@every_kind
async def test_a_compressed_refusal_is_read(kind: ProviderType) -> None:
    plain = refusal(kind, 422, "too hot")
    body = gzip.compress(plain.body)
    answer = Answer([body], 422, {"content-type": "application/json", "content-encoding": "gzip"}, Framing.LENGTH)
    async with upstream(kind, NEVER, refusal=answer) as remote:
        _, _, error = await outcome(remote.events())
    assert isinstance(error, InvalidRequest)
    assert "too hot" in error.message


@every_kind
@pytest.mark.parametrize("body", [b"not gzip at all", gzip.compress(b"data: {}\n\n" * 999, mtime=0)[:40]])
async def test_broken_compression_is_a_failure(kind: ProviderType, body: bytes) -> None:
    headers = {**EVENT_STREAM, "content-encoding": "gzip"}
    async with upstream(kind, Answer([body], headers=headers)) as remote:
        _, finished, error = await outcome(remote.events())
    assert finished is None
    assert isinstance(error, UpstreamError)


@every_kind
async def test_an_answer_without_an_end_is_not_kept(kind: ProviderType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.replicate.POLL_SECONDS", 0)
    endless = Answer([bytes(1024 * 1024)] * (LONGEST_BODY // 1024 // 1024 + 1), headers={"content-type": "text/json"})
    answers = [json_answer({"error": "no such route"}, 405), endless] if kind == "opensearch" else [endless]
    begun = json_answer({"id": ID, "status": "starting"}, 201) if kind == "replicate" else None
    async with upstream(kind, *answers, refusal=begun) as remote:
        remote.server.routes[f"/v1/predictions/{ID}"] = endless
        _, finished, error = await outcome(remote.events())
    assert finished is None
    assert error is not None
    assert error.message == f"Provider 'far' answered with more than {LONGEST_BODY} bytes."


def leaky_answers(kind: str) -> Iterator[Answer]:
    """Answers of a vendor that quotes the key it was given."""
    said = f"bad key {KEY} at https://u:{KEY}@host/?key={KEY}"
    for status in (400, 401, 403, 404, 409, 422, 429, 500, 503):
        yield refusal(kind, status, said)
    yield Answer([said.encode()], 502, {"content-type": "text/plain"})
    yield Answer([said.encode()], 200, {"content-type": "text/plain"})
    yield json_answer({"id": said, "error": said})
    for event in ("error", "completed", "done"):
        yield Answer(
            [f'event: {event}\ndata: {{"error": "{said}", "status": "failed"}}\n\n'.encode()], headers=EVENT_STREAM
        )
    yield Answer([f'data: {{"error": "{said}\\x"}}\n\n'.encode()], headers=EVENT_STREAM)


@every_kind
async def test_no_secret_is_in_an_error_a_log_or_a_traceback(
    kind: ProviderType, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    failures = 0
    for answer in leaky_answers(kind):
        for refused in (answer, None):
            async with upstream(kind, answer, refusal=refused) as remote:
                try:
                    async with remote.opened() as stream:
                        events = [event async for event in stream]
                    shown = repr(events)
                except GatewayError as error:
                    failures += 1
                    shown = error.message + "".join(traceback.format_exception(error))
            assert KEY not in shown
    assert failures > 10
    assert KEY not in caplog.text
