"""Answers that break or are no answers at all: the text so far, then a failure, never a success."""

from __future__ import annotations

import gzip
from contextlib import aclosing, suppress
from typing import Any

import pytest

from adapters.event_stream import FrameDecoder
from adapters.sagemaker_dialects import ContainerDecoder
from gateway.config import ProviderType
from gateway.errors import (
    InvalidRequest,
    RateLimited,
    Truncated,
    UpstreamError,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from gateway.events import Finished
from tests.aws.account import (
    BODIES,
    KINDS,
    OPENINGS,
    answer,
    at,
    audio_of,
    events,
    failure,
    failures,
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
    stream,
)
from tests.upstreams.byte_server import Act, Answer, Framing, serving

each = pytest.mark.parametrize("kind", KINDS)
MESSAGE = {"message": "Too much of it."}


@each
async def test_a_page_instead_of_an_answer(kind: ProviderType) -> None:
    page = Answer([b"<html>login</html>"], headers={"Content-Type": "text/html; charset=utf-8"}, framing=Framing.LENGTH)
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


@each
async def test_a_connection_cut_at_any_place_is_a_failure(kind: ProviderType) -> None:
    """A sample of the places over a socket; the decoders see every one in the next tests."""
    whole = b"".join(BODIES[kind])
    answers = [answer(kind, whole[:size], Act.DROP) for size in range(1, len(whole), len(whole) // 12)]
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
