"""The embedded chat model, without key and network: llama.cpp in a child process. Settings: `local:` in polywire.yaml.

The shipped model (SmolLM2 135M) shows that tokens stream; it knows little, speaks English only and cannot call tools.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from typing import Any

import aiohttp
from msgspec.structs import replace

from adapters.chat_completions import chat_body
from adapters.chat_http import read_chat
from adapters.http import HttpUpstream, error_for_response
from adapters.local_child import LocalChild
from adapters.local_folder import Address
from adapters.shortcut import ChatBursts, ChatShortcut, shortened
from gateway.config import ProviderRow, Settings
from gateway.errors import GatewayError, InvalidRequest
from gateway.events import Delta, Finished
from gateway.ports import Capabilities
from gateway.request import ChatRequest, Role, text_message

SYSTEM = text_message(Role.SYSTEM, "You are a helpful assistant. Answer briefly.")
MAX_TOKENS = 256
TEMPERATURE = 0.2
TOP_P = 0.9
EXTRA = ("min_p", "repeat_penalty", "logit_bias", "grammar")
ATTEMPTS = 2
DEATH_SECONDS = 1.0
"""How long a child that dropped a connection may take to be seen dead."""


class LocalChat:
    """A `ChatProvider` over the shared child. A child that died is started anew before the first event."""

    capabilities = Capabilities(tools=False, images=False)

    def __init__(self, row: ProviderRow, settings: Settings) -> None:
        self.name = row.name
        self._row = row
        self._child = LocalChild(settings.local)
        self._upstream: HttpUpstream | None = None
        self._address: Address | None = None

    async def warm(self) -> None:
        """Have the model loaded before the first request. Raises UpstreamUnavailable when it cannot be."""
        await self._child.address()

    def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | Finished, None]:
        return shortened(partial(self._reads, request))

    async def aclose(self) -> None:
        if self._upstream is not None:
            await self._upstream.aclose()
            self._upstream = self._address = None
        await self._child.aclose()

    async def _reads(self, request: ChatRequest, shortcut: ChatShortcut) -> ChatBursts:
        body, begun = _body(request), False

        def begin(event: Delta | Finished) -> Delta | Finished:
            nonlocal begun
            begun = True
            return event

        for attempt in range(1, ATTEMPTS + 1):
            address = await self._child.address()
            source = read_chat(await self._at(address), "/chat/completions", body, {}, shortcut)
            try:
                async with aclosing(source) as bursts:
                    async for burst in bursts:
                        yield map(begin, burst)
                return
            except GatewayError as error:
                if begun or attempt == ATTEMPTS or not isinstance(error.__cause__, aiohttp.ClientError | OSError):
                    raise
                await self._child.gone(address, DEATH_SECONDS)

    async def _at(self, address: Address) -> HttpUpstream:
        """The session with the child at `address`; one with a dead child has nothing left to give."""
        if self._upstream is None or self._address != address:
            dead, self._address = self._upstream, address
            # The server keeps one of its threads for each idle connection, so none is kept.
            headers = {"authorization": f"Bearer {address.key}", "connection": "close"}
            self._upstream = HttpUpstream(self._row, address.base_url, headers, explain=_explainer(address.key))
            if dead is not None:
                await dead.aclose()
        return self._upstream


def _explainer(key: str) -> Callable[[ProviderRow, aiohttp.ClientResponse, bytes], GatewayError]:
    """Tells a child's refusal, without the key that no row knows of."""
    return lambda row, response, body: error_for_response(row, response, body.replace(key.encode(), b"[secret]"))


def _body(request: ChatRequest) -> dict[str, Any]:
    if not request.messages:
        raise InvalidRequest("The request has no messages; send at least one.", param="messages")
    has_system = any(message.role is Role.SYSTEM for message in request.messages)
    sampling = request.sampling
    asked = replace(
        request,
        messages=request.messages if has_system else (SYSTEM, *request.messages),
        sampling=replace(
            sampling,
            max_tokens=MAX_TOKENS if sampling.max_tokens is None else sampling.max_tokens,
            temperature=TEMPERATURE if sampling.temperature is None else sampling.temperature,
            top_p=TOP_P if sampling.top_p is None else sampling.top_p,
        ),
        extra={name: request.extra[name] for name in EXTRA if name in request.extra},
    )
    body = chat_body(asked)
    # Empty chunks while the prompt is read: without them the engine notices only after the first token that nobody
    # waits any more, and a prompt may take it many seconds.
    body["return_progress"] = True
    if sampling.top_k is not None:
        body["top_k"] = sampling.top_k
    return body
