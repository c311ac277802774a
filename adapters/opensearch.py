"""Chat with a remote model of an OpenSearch cluster (ML Commons). Row: base_url, username_env, password_env, ca_file.

The upstream id is the cluster's model id. Streaming needs OpenSearch 3.3 with `transport-reactor-netty4`,
`arrow-flight-rpc` and `plugins.ml_commons.stream_enabled: true`; a cluster that does not stream is asked for the whole
answer. The stream carries neither usage nor a reason, so its reason is `stop`; calls of tools arrive as text.
The cluster can fall silent for ever (a truncated or tool-calling model behind it), so silence is bounded here as well.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from functools import partial
from typing import Any

import aiohttp
import msgspec

from adapters.chat_completions import chat_body
from adapters.http import HttpUpstream, bearer, decode_json, error_body, read_whole, retry_after
from adapters.opensearch_answer import answer_events
from adapters.opensearch_frames import PredictDecoder, error_parts, refusal
from adapters.prompt import flatten
from adapters.shortcut import ChatBursts, ChatShortcut, shortened
from gateway.config import ProviderRow, Settings
from gateway.errors import GatewayError, NotFound, UpstreamError, UpstreamTimeout
from gateway.events import Delta, Finished, FinishReason, TextDelta
from gateway.patience import Waited, WaitLimit
from gateway.ports import Capabilities
from gateway.request import ChatRequest

DEFAULT_BASE_URL = "https://localhost:9200"
INTERFACE = "_llm_interface"
OPENAI_INTERFACE = "openai/v1/chat/completions"
BEDROCK_INTERFACE = "bedrock/converse/claude"
SAMPLING = ("max_tokens", "temperature", "top_p", "stop", "seed", "presence_penalty", "frequency_penalty")
UNSENT = frozenset({"stream"})
"""Parameters that the cluster sets itself; on `_predict` it cannot bear them."""
LOOKUP_SECONDS = 5.0
ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")


NO_STREAMING = {(500, "illegal_state_exception"), (400, ""), (405, "")}
"""Switched off; no such route before 3.3 (the router's errors are sentences without a type)."""


class DoesNotStream(Exception):
    """The cluster, or this model there, has no streaming; nothing was begun."""


class OpenSearch:
    """A `ChatProvider` over `POST {base_url}/_plugins/_ml/models/{id}/_predict/stream`."""

    capabilities = Capabilities(tools=False, response_format=False)

    def __init__(self, row: ProviderRow, settings: Settings) -> None:
        self.name = row.name
        self._row = row
        self._upstream = HttpUpstream(row, row.base_url or DEFAULT_BASE_URL, {**bearer(row), **basic(row)})
        self._idle = row.idle_seconds or settings.limits.idle_seconds
        self._interfaces: dict[str, str] = {}

    def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | Finished, None]:
        return shortened(partial(self._reads, request))

    async def aclose(self) -> None:
        await self._upstream.aclose()

    async def _reads(self, request: ChatRequest, shortcut: ChatShortcut) -> ChatBursts:
        path = model_path(request.model)
        body = msgspec.json.encode({"parameters": parameters(request, await self._interface(request))})
        try:
            async with aclosing(self._streamed(f"{path}/_predict/stream", body, shortcut)) as bursts:
                async for burst in bursts:
                    yield burst
        except DoesNotStream:
            async with self._post(f"{path}/_predict", body) as response:
                if response.status != 200:
                    raise await self._refusal(response) from None
                events = answer_events(self._row, decode_json(self._row, await read_whole(response, self._row)))
            yield events
        else:
            yield (Finished(FinishReason.STOP),)

    async def _streamed(self, path: str, body: bytes, shortcut: ChatShortcut) -> ChatBursts:
        decoder, wait = PredictDecoder(self._row), WaitLimit()

        def decode(piece: bytes) -> Iterable[Delta]:
            wait.renew(self._idle)
            return map(TextDelta, decoder.feed(piece))

        async with self._post(path, body) as response:
            if response.status != 200:
                raise await self._refusal(response, streaming=True)
            if "html" in response.content_type:
                raise UpstreamError(
                    f"Provider {self.name!r} answered with a web page instead of a stream; check its base_url.",
                    provider=self.name,
                )
            try:
                async with aclosing(shortcut.read(response, decode, lambda: decoder.ended)) as bursts:
                    while (burst := await wait.within(self._idle, anext(bursts, None))) is not None:
                        yield burst
            except Waited:
                raise UpstreamTimeout(
                    f"Provider {self.name!r} sent nothing for {self._idle:g} s in the middle of its stream.",
                    provider=self.name,
                    retryable=False,
                ) from None
            finally:
                wait.stop()
            decoder.finish()

    def _post(self, path: str, body: bytes) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        # One piece with a length: the cluster parses each piece of a chunked request by itself.
        return self._upstream.send(
            "POST", path, body=body, headers={"content-type": "application/json"}, accept_errors=True
        )

    async def _refusal(self, response: aiohttp.ClientResponse, *, streaming: bool = False) -> Exception:
        body = await error_body(response)
        try:
            value = msgspec.json.decode(body)
        except msgspec.DecodeError:
            value = None
        answer = value if isinstance(value, dict) else {}
        error_type, reason = error_parts(answer.get("error"))
        if streaming and (response.status, error_type) in NO_STREAMING:
            return DoesNotStream()
        return refusal(self._row, response.status, error_type, reason, retry_after(response.headers))

    async def _interface(self, request: ChatRequest) -> str:
        """The `_llm_interface` of the model: the caller's word, else its connector's, which is looked up once."""
        said = request.extra.get(INTERFACE)
        if isinstance(said, str):
            return said
        if request.model not in self._interfaces:
            try:
                async with asyncio.timeout(LOOKUP_SECONDS):
                    self._interfaces[request.model] = interface_of(await self._connector(request.model))
            except (GatewayError, TimeoutError):
                return OPENAI_INTERFACE
        return self._interfaces[request.model]

    async def _connector(self, model_id: str) -> Mapping[str, Any]:
        model = await self._get(model_path(model_id))
        connector, connector_id = model.get("connector"), model.get("connector_id")
        if isinstance(connector, dict):
            return connector
        if isinstance(connector_id, str) and ID.fullmatch(connector_id):
            return await self._get(f"/_plugins/_ml/connectors/{connector_id}")
        return {}

    async def _get(self, path: str) -> Mapping[str, Any]:
        async with self._upstream.send("GET", path) as response:
            value = decode_json(self._row, await read_whole(response, self._row))
        return value if isinstance(value, dict) else {}


def parameters(request: ChatRequest, interface: str) -> dict[str, Any]:
    """The `parameters` of a prediction: `messages` for OpenAI's interface, `inputs`, one text, for Bedrock's."""
    body = chat_body(request)
    conversation = {"inputs": flatten(request.messages)} if interface.startswith("bedrock/") else {}
    return {
        **(conversation or {"messages": body["messages"]}),
        **{name: body[name] for name in SAMPLING if name in body},
        **{name: value for name, value in request.extra.items() if name not in UNSENT},
        INTERFACE: interface,
    }


def interface_of(connector: Mapping[str, Any]) -> str:
    """What a connector says it speaks, else what clusters accept for its protocol."""
    given = connector.get("parameters")
    said = given.get(INTERFACE) if isinstance(given, dict) else None
    if isinstance(said, str) and said:
        return said
    return BEDROCK_INTERFACE if connector.get("protocol") == "aws_sigv4" else OPENAI_INTERFACE


def model_path(model_id: str) -> str:
    """The path of a model. Raises NotFound for what cannot be an id there."""
    if not ID.fullmatch(model_id):
        raise NotFound(f"{model_id!r} is no OpenSearch model id.", code="model_not_found", param="model")
    return f"/_plugins/_ml/models/{model_id}"


def basic(row: ProviderRow) -> dict[str, str]:
    """The authorization header of a row with a user name. Raises UpstreamError when a variable is empty."""
    if row.basic is None:
        if row.username_env or row.password_env:
            raise UpstreamError(
                f"Provider {row.name!r} has no user: set the environment variables {row.username_env} and "
                f"{row.password_env} and restart.",
                provider=row.name,
                code="provider_credentials",
            )
        return {}
    credentials = base64.b64encode(":".join(row.basic).encode()).decode()
    return {"authorization": f"Basic {credentials}"}
