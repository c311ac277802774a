"""boto3 on the SageMaker runtime wire; curl on the container's and the function URL's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from tests.matrix import curl
from tests.matrix.client import Ask, Client, Counted, Question, Said, Told
from tests.matrix.desk import Desk

USAGE = {"stream_options": {"include_usage": True}}


def body(question: Question, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question.prompt}], **more}


def said(chunk: Any) -> list[Said]:
    """What one chunk of TGI's messages says."""
    if "error" in chunk:
        raise Told("in the stream", chunk["error"])
    pieces: list[Said] = [choice["delta"].get("content") or "" for choice in chunk["choices"]]
    usage = chunk.get("usage")
    return [*pieces, Counted(usage["prompt_tokens"], usage["completion_tokens"])] if usage else pieces


def sentence(refusal: Told) -> Told:
    """A refusal by its sentence alone, in either shape."""
    said = json.loads(refusal.sentence) if refusal.sentence else {}
    return Told(refusal.status, said.get("error") or said.get("message") or "")


def by_curl(path: str) -> Ask:
    async def ask(desk: Desk, question: Question) -> AsyncGenerator[Said, None]:
        data = body(question, model=question.model, stream=True, **USAGE)
        last = ""
        try:
            async with aclosing(curl.events(desk.service.url + path, data)) as events:
                async for last in events:
                    if last != "[DONE]":
                        for piece in said(json.loads(last)):
                            yield piece
        except Told as refusal:
            if refusal.status == "in the stream":
                raise
            raise sentence(refusal) from refusal
        assert last == "[DONE]"

    return ask


async def response_stream(desk: Desk, question: Question) -> AsyncGenerator[Said, None]:
    """boto3 reads in threads; its end is that of the events inside the payload parts."""
    data = json.dumps(body(question, stream=True, **USAGE))
    call = desk.runtime.invoke_endpoint_with_response_stream
    try:
        answer = await asyncio.to_thread(call, EndpointName=question.model, ContentType="application/json", Body=data)
        stream, text = answer["Body"], ""
        try:
            parts = iter(stream)
            while part := await asyncio.to_thread(next, parts, None):
                *events, text = (text + part["PayloadPart"]["Bytes"].decode()).split("\n\n")
                for event in events:
                    if event.startswith("data:{"):
                        for piece in said(json.loads(event.removeprefix("data:"))):
                            yield piece
        finally:
            stream.close()
    except ClientError as error:
        raise Told(error.response["Error"]["Code"], error.response["Error"]["Message"]) from error
    assert (event, text) == ("data:[DONE]", "")


async def invoke(desk: Desk, question: Question) -> AsyncGenerator[Said, None]:
    """InvokeEndpoint: the whole answer at once."""
    answer = await asyncio.to_thread(_invoked, desk.runtime, question)
    [choice] = answer["choices"]
    assert choice["finish_reason"] == "stop"
    yield choice["message"]["content"]
    if answer["usage"]:
        yield Counted(answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"])


def _invoked(client: Any, question: Question) -> Any:
    data = json.dumps(body(question))
    try:
        answer = client.invoke_endpoint(EndpointName=question.model, ContentType="application/json", Body=data)
        with answer["Body"] as content:
            return json.loads(content.read())
    except ClientError as error:
        raise Told(error.response["Error"]["Code"], error.response["Error"]["Message"]) from error


async def loses_patience(desk: Desk, ask: Ask, question: Question) -> None:
    """A blocking call gives up by its timeout."""
    with pytest.raises(ReadTimeoutError):
        await asyncio.to_thread(_invoked, desk.impatient, question)


STATUSES = {429: 429, 400: 400, 502: 502}
RUNTIME = {429: "ThrottlingException", 400: "ValidationError", 502: "ModelError"}
CLIENTS = (
    Client(
        "SageMaker `InvokeEndpointWithResponseStream`: boto3",
        "sagemaker_runtime",
        response_stream,
        RUNTIME,
        "ModelStreamError",
    ),
    Client(
        "SageMaker `InvokeEndpoint`: boto3",
        "sagemaker_runtime",
        invoke,
        RUNTIME,
        "ModelError",
        leave=loses_patience,
        whole=True,
    ),
    Client("`/invocations`: curl", "sagemaker", by_curl("/invocations"), STATUSES | {400: 422}, "in the stream"),
    Client("`/lambda`: curl", "lambda", by_curl("/lambda"), STATUSES, "in the stream"),
)
