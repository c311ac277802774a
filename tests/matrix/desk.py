"""The official clients, each made as its own documentation makes it, for one running service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any

import bentoml
import boto3
import grpc
from botocore.config import Config
from openai import AsyncOpenAI
from opensearch.protobufs.services.ml_service_pb2_grpc import MLServiceStub
from opensearchpy import AsyncOpenSearch
from replicate.client import Client as ReplicateClient

from tests.running import Service

LOSES_PATIENCE = 1.0
"""Seconds after which the impatient boto3 client gives an answer up: the one way in which it can."""


@dataclass(frozen=True, slots=True)
class Desk:
    """One client of each kind. None of them asks twice by itself."""

    service: Service
    openai: AsyncOpenAI
    bento: bentoml.AsyncHTTPClient
    replicate: ReplicateClient
    search: AsyncOpenSearch
    runtime: Any
    impatient: Any
    stub: MLServiceStub


@asynccontextmanager
async def desk(service: Service) -> AsyncIterator[Desk]:
    """The clients of `service`."""
    async with AsyncExitStack() as stack:
        replicate = ReplicateClient(api_token="any", base_url=service.url)
        stack.push_async_callback(replicate._async_client.aclose)
        stack.callback(replicate._client.close)
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{service.grpc_port}")
        host = {"host": "127.0.0.1", "port": service.port}
        yield Desk(
            service,
            await stack.enter_async_context(AsyncOpenAI(base_url=f"{service.url}/v1", api_key="any", max_retries=0)),
            await stack.enter_async_context(bentoml.AsyncHTTPClient(service.url)),
            replicate,
            await stack.enter_async_context(AsyncOpenSearch(hosts=[host], max_retries=0, timeout=30)),
            stack.enter_context(closing(_runtime(service, 30))),
            stack.enter_context(closing(_runtime(service, LOSES_PATIENCE))),
            MLServiceStub(await stack.enter_async_context(channel)),
        )


def _runtime(service: Service, seconds: float) -> Any:
    return boto3.client(
        "sagemaker-runtime",
        endpoint_url=service.url,
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
        config=Config(retries={"total_max_attempts": 1}, read_timeout=seconds, max_pool_connections=50),
    )
