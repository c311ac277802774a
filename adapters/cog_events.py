"""The event stream of Cog's own HTTP protocol, without I/O: bytes -> text. `completed` is the terminal marker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from adapters.http import decode_json
from adapters.provider_events import completed_events
from adapters.replicate_input import usage_of
from gateway.config import ProviderRow
from gateway.errors import Cancelled, Truncated, UpstreamError
from gateway.events import Usage
from gateway.sse import ServerSentEvent, SseDecoder

LONGEST_QUOTE = 300


class _Output(msgspec.Struct):
    chunk: Any = None
    index: int | None = None


_decode_output = msgspec.json.Decoder(_Output).decode


class CogDecoder:
    """One prediction's event stream, or its result as one JSON object."""

    def __init__(self, row: ProviderRow) -> None:
        self._row = row
        self._events = SseDecoder()
        self._outputs = 0
        self.usage: Usage | None = None
        self.ended = False
        """Whether there is nothing to be cancelled: the prediction has ended by itself or was never begun."""

    def feed(self, data: bytes) -> Iterator[str]:
        """The pieces of text that `data` completes; then raises GatewayError, if it tells of a failure."""
        for event in completed_events(self._row, self._events, data):
            if text := self._take(event):
                yield text

    def whole(self, body: bytes) -> str:
        """The text of a result that was not streamed. Raises GatewayError when the model failed."""
        result = decode_json(self._row, body)
        self._complete(result)
        output = result.get("output")
        return "".join(self._text(piece) for piece in (output if isinstance(output, list) else [output]))

    def finish(self) -> None:
        """The stream's end. Raises Truncated when it came before the prediction's."""
        if not self.ended:
            raise self._truncated("ended its stream without 'completed'")

    def _take(self, event: ServerSentEvent) -> str:
        if self.ended:
            return ""
        if event.event == "output":
            return self._output(event.data)
        if event.event == "completed":
            self._complete(decode_json(self._row, event.data))
        elif event.event == "error":
            # Not the model's failure: the server had to leave events out.
            raise self._truncated("dropped a part of its stream")
        return ""

    def _output(self, data: bytes) -> str:
        try:
            output = _decode_output(data)
        except msgspec.DecodeError as error:
            raise UpstreamError(
                f"Provider {self._row.name!r} sent an output that is not JSON.", provider=self._row.name
            ) from error
        if output.index is not None and output.index != self._outputs:
            raise self._truncated("left out a part of its stream")
        self._outputs += 1
        return self._text(output.chunk)

    def _complete(self, result: Any) -> None:
        name = self._row.name
        status = result.get("status") if isinstance(result, dict) else None
        if status not in ("succeeded", "failed", "canceled"):
            raise UpstreamError(f"Provider {name!r} sent a result without a known status.", provider=name)
        self.ended = True
        if status == "canceled":
            raise Cancelled(f"Provider {name!r} reports that the prediction was cancelled there.", provider=name)
        if status == "failed":
            error = result.get("error")
            said = f": {self._row.scrub(error)[:LONGEST_QUOTE]}" if isinstance(error, str) and error else "."
            raise UpstreamError(f"Provider {name!r} reports that the model failed{said}", provider=name)
        self.usage = usage_of(result.get("metrics"))

    def _text(self, chunk: object) -> str:
        if isinstance(chunk, str | None):
            return chunk or ""
        raise UpstreamError(
            f"Provider {self._row.name!r} runs a model that does not answer with text.", provider=self._row.name
        )

    def _truncated(self, what: str) -> Truncated:
        return Truncated(f"Provider {self._row.name!r} {what}; the answer is incomplete.", provider=self._row.name)
