"""Our SageMaker provider reading our own SageMaker runtime wire: both ends agree on frames, errors and names."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import pytest

from adapters.sagemaker import SageMaker
from gateway.config import Settings
from gateway.errors import GatewayError, RateLimited, UpstreamError
from gateway.events import FinishReason
from gateway.request import ChatRequest, Role, text_message
from tests.aws.account import finished, read_all, row, text_of
from tests.running import Service
from tests.upstreams.aws_fake import SENTENCE


async def ask(service: Service, model: str) -> tuple[list[Any], GatewayError | None]:
    async with aclosing(SageMaker(row("sagemaker", service.url), Settings())) as sagemaker:
        return await read_all(sagemaker.stream(ChatRequest(model, (text_message(Role.USER, "hi"),))))


async def test_a_whole_answer(service: Service) -> None:
    seen, error = await ask(service, "hello")
    assert error is None
    assert text_of(seen) == SENTENCE
    assert finished(seen).reason is FinishReason.STOP


@pytest.mark.parametrize("model", ["fails-midway", "truncated"])
async def test_an_answer_that_fails_midway_keeps_its_text(service: Service, model: str) -> None:
    seen, error = await ask(service, model)
    assert text_of(seen)
    assert isinstance(error, UpstreamError)


async def test_a_refusal_before_the_first_event_keeps_its_status(service: Service) -> None:
    seen, error = await ask(service, "fails-first")
    assert seen == []
    assert isinstance(error, RateLimited)
    assert "Slow down." in error.message
