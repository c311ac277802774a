"""What Replicate says of a prediction, without I/O: the bytes of its event stream and its JSON object -> text.

`done` is the terminal marker. A stream that ends without it was cut: a new one is begun with `Last-Event-ID`, and an
event that it repeats is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from adapters.provider_events import completed_events
from gateway.config import ProviderRow
from gateway.errors import Cancelled, Truncated, UpstreamError, UpstreamTimeout
from gateway.sse import ServerSentEvent, SseDecoder

TIME_OUT = b"408:"
"""A comment, not an event: the stream's 30 s are over, or there is no such prediction any more."""
ENDED = frozenset({"succeeded", "failed", "canceled", "aborted"})
LONGEST_QUOTE = 300


class PredictionDecoder:
    """One prediction's text, however often its stream is cut."""

    def __init__(self, row: ProviderRow) -> None:
        self._row = row
        self._events = SseDecoder()
        self._pieces: list[str] = []
        self._ids: list[str] = []
        self._ids_before_cut: set[str] = set()
        self._detail: str | None = None
        self.last_id: str | None = None
        """The id of the last output: what comes after it is still missing."""
        self.ended = False
        """Whether the prediction has come to an end by itself: nothing is left to be cancelled."""
        self.timed_out = False
        """Whether the last stream was cut by the server's own time limit."""
        self.cuts_in_a_row = 0
        """Cuts by anything else, without any new text between."""

    @property
    def resumable(self) -> bool:
        """Whether a new stream can begin where the last one was cut."""
        return self.last_id is not None or not self._pieces

    def feed(self, data: bytes) -> Iterator[str]:
        """The pieces of text that `data` completes; then raises GatewayError, if it tells of a failure."""
        for event in completed_events(self._row, self._events, data):
            if text := self._take(event):
                yield text

    def cut(self) -> None:
        """The stream broke off; the next bytes are those of a new one. Raises the failure it had announced."""
        if self._detail is not None:
            raise self._failure()
        self.timed_out = self._events.comment.startswith(TIME_OUT)
        self.cuts_in_a_row += not self.timed_out
        self._events = SseDecoder()
        self._ids_before_cut.update(self._ids)
        self._ids.clear()

    def catch_up(self, prediction: dict[str, Any]) -> str:
        """The text that a prediction object has beyond what was read. Raises GatewayError when it failed."""
        status = prediction.get("status")
        self.ended = status in ENDED
        if status == "failed":
            self._detail = _text(prediction.get("error"))
            raise self._failure()
        if status in ("canceled", "aborted"):
            raise self._cancelled()
        so_far, whole = "".join(self._pieces), self._output(prediction)
        if not whole.startswith(so_far):
            # Line ends do not survive an event stream.
            whole = whole.replace("\r\n", "\n").replace("\r", "\n")
        if prediction.get("data_removed") or not whole.startswith(so_far):
            raise self.truncated()
        rest = whole[len(so_far) :]
        self._pieces.append(rest)
        return rest

    def truncated(self) -> Truncated | UpstreamTimeout:
        """The failure of a stream that was `cut` and cannot be resumed."""
        name = self._row.name
        if self.timed_out:
            return UpstreamTimeout(
                f"Provider {name!r} ended the stream at its own time limit.", provider=name, retryable=False
            )
        return Truncated(f"Provider {name!r} ended its stream without 'done'; the answer is incomplete.", provider=name)

    def _take(self, event: ServerSentEvent) -> str:
        if self.ended:
            return ""
        if event.event == "output":
            return self._output_event(event)
        if event.event == "error":
            self._detail = _detail(event)
        elif event.event == "done":
            self._done(event)
        return ""

    def _output_event(self, event: ServerSentEvent) -> str:
        if event.id is not None:
            if event.id in self._ids_before_cut:
                return ""
            self.last_id = event.id
            self._ids.append(event.id)
        text = event.text
        self._pieces.append(text)
        if text:
            self.cuts_in_a_row = 0
        return text

    def _done(self, event: ServerSentEvent) -> None:
        self.ended = True
        try:
            value = msgspec.json.decode(event.data or b"{}")
        except msgspec.DecodeError:
            value = {"reason": "error"}
        reason = value.get("reason") if isinstance(value, dict) else "error"
        if reason == "canceled":
            raise self._cancelled()
        if reason is not None or self._detail is not None:
            raise self._failure()

    def _output(self, prediction: dict[str, Any]) -> str:
        output = prediction.get("output")
        pieces = output if isinstance(output, list) else [output]
        if not all(isinstance(piece, str | None) for piece in pieces):
            raise UpstreamError(
                f"Provider {self._row.name!r} runs a model that does not answer with text.", provider=self._row.name
            )
        return "".join(piece or "" for piece in pieces)

    def _failure(self) -> UpstreamError:
        said = f": {self._row.scrub(self._detail)[:LONGEST_QUOTE]}" if self._detail else "."
        return UpstreamError(
            f"Provider {self._row.name!r} reports that the model failed{said}", provider=self._row.name
        )

    def _cancelled(self) -> Cancelled:
        return Cancelled(
            f"Provider {self._row.name!r} reports that the prediction was cancelled there.", provider=self._row.name
        )


def _detail(event: ServerSentEvent) -> str:
    try:
        value = msgspec.json.decode(event.data)
    except msgspec.DecodeError:
        return event.text
    return _text(value.get("detail")) if isinstance(value, dict) else event.text


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
