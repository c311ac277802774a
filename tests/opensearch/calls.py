"""Calls of PredictModelStream, as the tests make and read them."""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf import json_format
from opensearch.protobufs.schemas import common_pb2


def asked(model: str, **parameters: Any) -> Any:
    """A request in its JSON form."""
    body = {"model_id": model, "ml_predict_model_stream_request_body": {"parameters": parameters}}
    return json_format.ParseDict(body, common_pb2.MlPredictModelStreamRequest())


async def read(call: Any) -> tuple[list[Any], grpc.StatusCode, str]:
    """The messages and the status of a call."""
    messages = []
    try:
        async for message in call:
            messages.append(message)
    except grpc.aio.AioRpcError as error:
        return messages, error.code(), error.details() or ""
    return messages, await call.code(), await call.details()


def content(message: Any) -> str:
    return str(message.inference_results[0].output[0].data_as_map.content)
