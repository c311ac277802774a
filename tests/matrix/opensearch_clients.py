"""curl, opensearch-py and the gRPC stub on ML Commons' wires."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any

import grpc
from opensearchpy import TransportError

from tests.contract.wires import NO_USAGE
from tests.matrix import curl
from tests.matrix.client import Ask, Client, Counted, Question, Said, Told
from tests.matrix.desk import Desk
from tests.opensearch.calls import asked
from tests.opensearch.cluster import OPENAI as INTERFACE

STATUSES = {429: 429, 400: 400, 502: 502}
U = {"u": NO_USAGE["usage"]}


def messages(question: Question) -> list[dict[str, str]]:
    return [{"role": "user", "content": question.prompt}]


async def streamed(desk: Desk, question: Question) -> AsyncGenerator[Said, None]:
    path = f"{desk.service.url}/_plugins/_ml/models/{question.model}/_predict/stream"
    given = {"parameters": {"messages": messages(question), "_llm_interface": INTERFACE}}
    last = False
    try:
        async with aclosing(curl.events(path, given)) as events:
            async for event in events:
                frame = json.loads(event)
                if "error" in frame:
                    raise Told("in the stream", frame["error"])
                found = frame["inference_results"][0]["output"][0]["dataAsMap"]
                yield found["content"]
                last = found["is_last"]
    except Told as refusal:
        if refusal.status == "in the stream":
            raise
        error = json.loads(refusal.sentence)["error"]
        raise Told(refusal.status, error["reason"]) from refusal
    assert last is True


async def predicted(desk: Desk, question: Question) -> AsyncGenerator[Said, None]:
    """opensearch-py reads whole answers only."""
    given = {"parameters": {"messages": messages(question)}}
    try:
        answer = await desk.search.plugins.ml.predict_model(model_id=question.model, body=given)
    except TransportError as error:
        info: Any = error.info
        raise Told(error.status_code, info["error"]["reason"]) from error
    completion = answer["inference_results"][0]["output"][0]["dataAsMap"]
    [choice] = completion["choices"]
    assert choice["finish_reason"] == "stop"
    yield choice["message"]["content"]
    if completion["usage"]:
        yield Counted(completion["usage"]["prompt_tokens"], completion["usage"]["completion_tokens"])


async def is_cancelled(desk: Desk, ask: Ask, question: Question) -> None:
    """The task that waits for a whole answer is cancelled once the model is at work."""

    async def read() -> None:
        async with aclosing(ask(desk, question)) as stream:
            await anext(stream)

    reading = asyncio.create_task(read())
    await question.begun()
    reading.cancel()
    with suppress(asyncio.CancelledError):
        await reading


async def called(desk: Desk, question: Question) -> AsyncGenerator[Said, None]:
    call = desk.stub.PredictModelStream(asked(question.model, messages=messages(question), x_llm_interface=INTERFACE))
    last = False
    try:
        async for message in call:
            found = message.inference_results[0].output[0].data_as_map
            yield found.content
            last = found.is_last
    except grpc.aio.AioRpcError as error:
        raise Told(error.code().name, error.details() or "") from error
    finally:
        call.cancel()
    assert last is True


CLIENTS = (
    Client("ML Commons `_predict/stream`: curl", "opensearch", streamed, STATUSES, "in the stream", cannot=U),
    Client(
        "ML Commons `_predict`: opensearch-py",
        "opensearch",
        predicted,
        STATUSES,
        502,
        500,  # opensearch-py would send a request again for 502
        leave=is_cancelled,
        whole=True,
        passed_on=True,
    ),
    Client(
        "ML Commons `PredictModelStream`: gRPC stub",
        "opensearch-grpc",
        called,
        {429: "RESOURCE_EXHAUSTED", 400: "INVALID_ARGUMENT", 502: "INTERNAL"},
        "INTERNAL",
        cannot=U,
    ),
)
