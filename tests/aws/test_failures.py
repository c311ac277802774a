"""Everything that an AWS upstream can do wrong, and what the caller is told; no key is ever part of it."""

from __future__ import annotations

import gzip
import logging
import traceback
from contextlib import aclosing, suppress
from typing import Any

import pytest

from adapters.event_stream import FrameDecoder
from adapters.sagemaker_dialects import ContainerDecoder
from gateway.config import ProviderType
from gateway.errors import (
    GatewayError,
    InvalidRequest,
    NotFound,
    RateLimited,
    Truncated,
    UpstreamError,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from gateway.events import Finished
from tests.aws.account import (
    BODIES,
    CANARIES,
    KINDS,
    OPENINGS,
    answer,
    at,
    audio_of,
    events,
    provider,
    read_all,
    row,
    text_of,
)
from tests.upstreams.aws_fake import (
    CONVERSE_TEXT,
    EVENT_STREAM,
    PCM,
    SENTENCE,
    TGI_3,
    error,
    exception,
    parts,
    refusal,
    stream,
)
from tests.upstreams.scripted_http import CUT, Answer, serving

each = pytest.mark.parametrize("kind", KINDS)
MESSAGE = {"message": "Too much of it."}
CREDENTIALS = "provider_credentials"


async def failures(kind: ProviderType, *answers: Answer) -> list[tuple[list[Any], GatewayError]]:
    """What one adapter gives for each answer in turn: its events and its error."""
    told = []
    async with serving(*answers) as server, at(server, kind) as adapter:
        for _ in answers:
            seen, raised = await read_all(events(adapter))
            assert raised is not None
            assert raised.provider == kind
            told.append((seen, raised))
    return told


async def failure(kind: ProviderType, answered: Answer) -> tuple[list[Any], GatewayError]:
    (told,) = await failures(kind, answered)
    return told


REFUSALS = [
    (400, "ValidationException", InvalidRequest, 400),
    (400, "ServiceQuotaExceededException", RateLimited, 429),
    (404, "ResourceNotFoundException", NotFound, 404),
    (408, "ModelTimeoutException", UpstreamTimeout, 504),
    (413, "RequestEntityTooLarge", GatewayError, 413),
    (424, "ModelErrorException", UpstreamError, 502),
    (429, "ThrottlingException", RateLimited, 429),
    (429, "ModelNotReadyException", RateLimited, 429),
    (500, "InternalServerException", UpstreamError, 502),
    (500, "InternalFailure", UpstreamError, 502),
    (503, "ServiceUnavailableException", UpstreamUnavailable, 503),
    (530, "InternalDependencyException", UpstreamError, 502),
    (418, "ACodeOf2030", InvalidRequest, 400),
]


@each
async def test_refusals_by_code_and_status(kind: ProviderType) -> None:
    told = await failures(kind, *(refusal(status, code, MESSAGE) for status, code, _, _ in REFUSALS))
    for (seen, raised), (_, code, kind_of_error, status) in zip(told, REFUSALS, strict=True):
        assert seen == []
        assert isinstance(raised, kind_of_error), code
        assert raised.status == status, code
        assert "Too much of it." in raised.message


@each
async def test_retry_after_is_kept(kind: ProviderType) -> None:
    pauses = ["7", "0.5"]
    answers = [refusal(429, "ThrottlingException", MESSAGE, retry_after=pause) for pause in pauses]
    for (_, raised), pause in zip(await failures(kind, *answers), pauses, strict=True):
        assert raised.retry_after == float(pause)
        assert raised.retryable


async def test_what_may_pass_by_itself_is_retryable() -> None:
    codes = ("InternalServerException", "ModelNotReadyException", "ServiceUnavailableException")
    for _, raised in await failures("bedrock", *(refusal(500, code, MESSAGE) for code in codes)):
        assert raised.retryable


OURS = [
    (403, "AccessDeniedException"),
    (403, "UnrecognizedClientException"),
    (403, "ExpiredTokenException"),
    (400, "ExpiredTokenException"),
    (403, "InvalidSignatureException"),
    (400, "IncompleteSignatureException"),
    (403, "MissingAuthenticationTokenException"),
    (401, ""),
    (403, ""),
]


@each
async def test_our_own_credentials_are_to_blame_and_never_shown(kind: ProviderType) -> None:
    said = {"message": f"{CANARIES[0]} is not authorized"}
    for _, raised in await failures(kind, *(refusal(status, code, said) for status, code in OURS)):
        assert isinstance(raised, UpstreamError)
        assert (raised.status, raised.code) == (502, CREDENTIALS)
        assert "credentials" in raised.message
        assert "authorized" not in raised.message


async def test_the_code_is_also_found_in_the_body() -> None:
    for body in ({"__type": "com.amazon#ThrottlingException"}, {"code": "Throttling"}):
        _, raised = await failure("bedrock", Answer([str(body).replace("'", '"').encode()], 400, {}, "length"))
        assert isinstance(raised, RateLimited)


async def test_a_containers_own_refusal_keeps_its_meaning() -> None:
    statuses = {400: 400, 422: 400, 429: 429, 503: 503, 401: 502, 404: 502, 500: 502, None: 502}
    body = {
        "Message": "Received client error from container, see https://log/group/account 123456789012",
        "OriginalMessage": '{"error":"Input validation error"}',
        "LogStreamArn": "arn:aws:logs:us-east-1:123456789012:log-group:x",
    }
    answers = [refusal(424, "ModelError", body | {"OriginalStatusCode": original}) for original in statuses]
    for (_, raised), told in zip(await failures("sagemaker", *answers), statuses.values(), strict=True):
        assert raised.status == told
        assert "123456789012" not in raised.message
        assert "Input validation error" in raised.message


@each
async def test_a_page_instead_of_an_answer(kind: ProviderType) -> None:
    page = Answer([b"<html>login</html>"], headers={"Content-Type": "text/html; charset=utf-8"}, framing="length")
    seen, raised = await failure(kind, page)
    assert seen == []
    assert "text/html" in raised.message
    assert "login" not in raised.message


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


@each
async def test_a_compressed_answer_is_read_and_a_broken_one_fails(kind: ProviderType) -> None:
    head = (EVENT_STREAM if kind != "polly" else {"Content-Type": "audio/pcm"}) | {"Content-Encoding": "gzip"}
    packed = gzip.compress(b"".join(BODIES[kind]))
    async with serving(Answer([packed[:30], packed[30:]], headers=head)) as server, at(server, kind) as adapter:
        seen, raised = await read_all(events(adapter))
    assert raised is None
    assert (text_of(seen), audio_of(seen)) == (("", PCM) if kind == "polly" else (SENTENCE, b""))
    seen, _ = await failure(kind, Answer([b"this is not gzip"], headers=head))
    assert seen == []


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
async def test_nobody_there(kind: ProviderType) -> None:
    async with serving(Answer()) as server:
        url = server.url
    for address, word in ((url, "refused"), ("http://nobody.invalid", "unknown")):
        async with aclosing(provider(kind, address)) as adapter:
            _, raised = await read_all(events(adapter))
        assert isinstance(raised, UpstreamUnavailable)
        assert word in raised.message


@each
async def test_a_connection_that_closes_without_an_answer(kind: ProviderType) -> None:
    _, raised = await failure(kind, Answer([CUT], status=0))
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


@each
async def test_a_connection_cut_at_any_place_is_a_failure(kind: ProviderType) -> None:
    """A sample of the places over a socket; the decoders see every one in the next tests."""
    whole = b"".join(BODIES[kind])
    answers = [answer(kind, whole[:size], CUT) for size in range(1, len(whole), len(whole) // 12)]
    async with serving(*answers) as server, at(server, kind) as adapter:
        for _ in answers:
            seen, raised = await read_all(events(adapter))
            assert isinstance(raised, Truncated)
            assert SENTENCE.startswith(text_of(seen))
            assert PCM.startswith(audio_of(seen))


def test_cut_after_every_byte_of_a_framed_container_answer() -> None:
    whole = b"".join(parts(TGI_3, 70))
    marker = whole.index(b'"finish_reason":"stop"')
    for size in range(len(whole)):
        frames, decoder = FrameDecoder("sagemaker"), ContainerDecoder(row("sagemaker", None))
        seen: list[Any] = []
        with suppress(UpstreamError):
            for frame in frames.feed(whole[:size]):
                seen.extend(decoder.feed(frame.payload))
            frames.end()
            seen.extend(decoder.end())
            seen.append(decoder.finish())
        assert SENTENCE.startswith(text_of(seen))
        if size < marker:
            assert not any(isinstance(found, Finished) for found in seen)


@each
async def test_no_key_in_any_error_log_or_traceback(kind: ProviderType, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    said = {"message": " ".join(CANARIES), "Message": " ".join(CANARIES), "OriginalMessage": " ".join(CANARIES)}
    answers = [
        *(refusal(status, code, said) for status in (400, 401, 403, 404, 424, 429, 500) for code in ("", "ModelError")),
        answer(kind, exception("validationException", said)),
        answer(kind, error("InternalFailure", " ".join(CANARIES))),
        Answer([" ".join(CANARIES).encode()], 500, {"Content-Type": "text/html"}),
    ]
    shown = []
    async with serving(*answers) as server, at(server, kind) as adapter:
        for _ in answers:
            _, raised = await read_all(events(adapter))
            if raised is not None:
                shown += [str(raised), repr(raised), "".join(traceback.format_exception(raised))]
    assert len(shown) >= 3 * (len(answers) - 2)
    logs = [record.getMessage() for record in caplog.records] + [caplog.text]
    for canary in CANARIES:
        assert not any(canary in text for text in [*shown, *logs])
