"""Answers that break or are no answers at all: the text so far, then a failure, never a success."""

from __future__ import annotations

import pytest

from gateway.config import ProviderType
from gateway.errors import (
    InvalidRequest,
    RateLimited,
    Truncated,
    UpstreamError,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from tests.aws.account import (
    BODIES,
    KINDS,
    OPENINGS,
    failure,
    failures,
    text_of,
)
from tests.upstreams.aws_fake import (
    CONVERSE_TEXT,
    EVENT_STREAM,
    SENTENCE,
    error,
    exception,
    parts,
    stream,
)
from tests.upstreams.byte_server import Act, Answer

each = pytest.mark.parametrize("kind", KINDS)
MESSAGE = {"message": "Too much of it."}


@pytest.mark.parametrize("kind", ["bedrock", "sagemaker"])
async def test_a_page_under_the_right_content_type(kind: ProviderType) -> None:
    seen, raised = await failure(kind, Answer([b"<html>login</html>"], headers=EVENT_STREAM))
    assert seen == []
    assert "not an AWS event stream" in raised.message


@each
async def test_an_html_error_page_is_not_quoted(kind: ProviderType) -> None:
    _, raised = await failure(kind, Answer([b"<html>secret"], 503, {"Content-Type": "text/html"}))
    assert isinstance(raised, UpstreamUnavailable)
    assert "secret" not in raised.message


@pytest.mark.parametrize("kind", ["bedrock", "sagemaker"])
async def test_ten_megabytes_in_one_frame_or_line_are_refused(kind: ProviderType) -> None:
    length = (10 * 2**20).to_bytes(4, "big")
    seen, raised = await failure(kind, stream(length + bytes(2**16), *[bytes(2**16)] * 200))
    assert seen == []
    assert "longer than" in raised.message
    if kind == "sagemaker":
        line = stream(*parts(b"data: {" + b"x" * (10 * 2**20), 2**20))
        seen, raised = await failure(kind, line)
        assert seen == []
        assert "longer than" in raised.message


@each
async def test_a_connection_that_closes_without_an_answer(kind: ProviderType) -> None:
    _, raised = await failure(kind, Answer(before_head=Act.DROP))
    assert isinstance(raised, UpstreamUnavailable)
    assert raised.retryable


EXCEPTIONS = [
    (exception("throttlingException", MESSAGE), RateLimited),
    (exception("validationException", MESSAGE), InvalidRequest),
    (exception("internalServerException", MESSAGE), UpstreamError),
    (exception("serviceUnavailableException", MESSAGE), UpstreamUnavailable),
    (exception("modelTimeoutException", MESSAGE), UpstreamTimeout),
    (exception("modelStreamErrorException", MESSAGE | {"originalStatusCode": 500}), UpstreamError),
    (exception("modelStreamErrorException", MESSAGE | {"originalStatusCode": 429}), RateLimited),
    (exception("aKindOf2030", MESSAGE), UpstreamError),
    (error("InternalFailure", "Too much of it."), UpstreamError),
    (error("Throttling", "Too much of it."), RateLimited),
]


@pytest.mark.parametrize(("opening", "text"), [([], ""), (CONVERSE_TEXT[:3], "Hello 안녕")])
async def test_exceptions_inside_a_bedrock_stream(opening: list[bytes], text: str) -> None:
    told = await failures("bedrock", *(stream(*opening, frame, *CONVERSE_TEXT) for frame, _ in EXCEPTIONS))
    for (seen, raised), (_, kind_of_error) in zip(told, EXCEPTIONS, strict=True):
        assert text_of(seen) == text
        assert isinstance(raised, kind_of_error)
        assert "Too much of it." in raised.message


@pytest.mark.parametrize(
    ("frame", "status"),
    [
        (exception("ModelStreamError", {"Message": "died", "ErrorCode": "StreamBroken"}), 502),
        (exception("ModelStreamError", {"Message": "slow", "ErrorCode": "ModelInvocationTimeExceeded"}), 504),
        (exception("InternalStreamFailure", {"Message": "oops"}), 502),
    ],
)
async def test_exceptions_inside_a_sagemaker_stream(frame: bytes, status: int) -> None:
    seen, raised = await failure("sagemaker", stream(OPENINGS["sagemaker"], frame))
    assert text_of(seen) == "Hi"
    assert raised.status == status


async def test_a_corrupted_frame_midway_keeps_what_came_before() -> None:
    broken = bytearray(CONVERSE_TEXT[2])
    broken[-1] ^= 1
    seen, raised = await failure("bedrock", stream(*CONVERSE_TEXT[:2], bytes(broken), *CONVERSE_TEXT[3:]))
    assert text_of(seen) == "Hello "
    assert "corrupted" in raised.message


@pytest.mark.parametrize("kind", ["bedrock", "sagemaker"])
async def test_a_body_that_ends_as_http_wants_it_but_inside_a_frame_is_a_failure(kind: ProviderType) -> None:
    """AWS's own client takes this for a whole answer."""
    *most, last = [*BODIES[kind], OPENINGS[kind]]
    seen, raised = await failure(kind, stream(*most, last[:-1]))
    assert text_of(seen) == SENTENCE
    assert isinstance(raised, Truncated)
