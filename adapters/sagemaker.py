"""Chat with a SageMaker endpoint over InvokeEndpointWithResponseStream. Row: region; optional dialect and profile.

The upstream id is the endpoint's name, or `endpoint/component` for an inference component. The dialect is the model
row's, else the provider row's, else `openai`; the model row's `served_model` is the name told to the container.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from functools import partial
from urllib.parse import quote

import msgspec

from adapters.aws import AwsUpstream
from adapters.event_stream import Frame
from adapters.sagemaker_dialects import BODIES, ContainerDecoder
from adapters.shortcut import ChatBursts, ChatShortcut, shortened
from gateway.config import ProviderRow, Settings
from gateway.events import Delta, Finished
from gateway.ports import Capabilities
from gateway.request import ChatRequest


class SageMaker:
    """A `ChatProvider` over `POST /endpoints/{name}/invocations-response-stream`."""

    capabilities = Capabilities()

    def __init__(self, row: ProviderRow, settings: Settings) -> None:
        self.name = row.name
        self._row = row
        self._upstream = AwsUpstream(row, "sagemaker-runtime")

    def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | Finished, None]:
        return shortened(partial(self._reads, request))

    async def aclose(self) -> None:
        await self._upstream.aclose()

    async def _reads(self, request: ChatRequest, shortcut: ChatShortcut) -> ChatBursts:
        dialect = request.options.get("dialect") or self._row.dialect or "openai"
        body = msgspec.json.encode(BODIES[dialect](request))
        endpoint, _, component = request.model.partition("/")
        # The container's own Accept travels under this name; `Accept` itself is not passed on.
        headers = {"X-Amzn-SageMaker-Accept": "*/*"}
        if component:
            headers["X-Amzn-SageMaker-Inference-Component"] = component
        path = f"/endpoints/{quote(endpoint, safe='')}/invocations-response-stream"
        decoder = ContainerDecoder(self._row)

        def decode(frame: Frame) -> Iterable[Delta]:
            return decoder.feed(frame.payload) if frame.name == "PayloadPart" else ()

        async with aclosing(self._upstream.read(shortcut, path, body, decode, headers)) as bursts:
            async for burst in bursts:
                yield burst
        yield decoder.end()
        yield (decoder.finish(),)
