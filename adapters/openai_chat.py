"""Chat with OpenAI and anything compatible: vLLM, TGI 3, Ollama, LMI, llama.cpp. Row: base_url, api_key_env.

OpenAI's own reasoning models want `max_tokens_field: max_completion_tokens`. The openai package's client is not on this
path: its model object per chunk costs more than all the rest (docs/performance.md).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial

from adapters.chat_completions import chat_body
from adapters.chat_http import read_chat
from adapters.http import HttpUpstream, bearer
from adapters.shortcut import shortened
from gateway.config import ProviderRow, Settings
from gateway.events import Delta, Finished
from gateway.ports import Capabilities
from gateway.request import ChatRequest

__all__ = ["DEFAULT_BASE_URL", "OpenAIChat", "bearer"]

DEFAULT_BASE_URL = "https://api.openai.com/v1"


class OpenAIChat:
    """A `ChatProvider` over `POST {base_url}/chat/completions`."""

    capabilities = Capabilities()

    def __init__(self, row: ProviderRow, settings: Settings) -> None:
        self.name = row.name
        self._row = row
        self._upstream = HttpUpstream(row, row.base_url or DEFAULT_BASE_URL, bearer(row))

    def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | Finished, None]:
        body = chat_body(request, max_tokens_field=self._row.max_tokens_field)
        return shortened(partial(read_chat, self._upstream, "/chat/completions", body, {}))

    async def aclose(self) -> None:
        await self._upstream.aclose()
