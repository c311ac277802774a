"""Everything that an AWS upstream can do wrong, and what the caller is told; no key is ever part of it."""

from __future__ import annotations

import logging
import traceback

import pytest

from gateway.config import ProviderType
from gateway.errors import (
    GatewayError,
    InvalidRequest,
    NotFound,
    RateLimited,
    UpstreamError,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from tests.aws.account import (
    CANARIES,
    KINDS,
    answer,
    at,
    events,
    failure,
    failures,
    read_all,
)
from tests.upstreams.aws_fake import (
    error,
    exception,
    refusal,
)
from tests.upstreams.byte_server import Answer, Framing, serving

each = pytest.mark.parametrize("kind", KINDS)
MESSAGE = {"message": "Too much of it."}
CREDENTIALS = "provider_credentials"


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
        _, raised = await failure("bedrock", Answer([str(body).replace("'", '"').encode()], 400, {}, Framing.LENGTH))
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
