"""Encode: the events of a prediction -> Replicate's server-sent events.

Each has a name and an id, since the Python client drops what lacks one and glues its text to the next. The ids count
up from 0 and depend on the recording alone, so that a stream can be resumed after any of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import assert_never

from gateway.events import (
    AudioDelta,
    AudioStart,
    Failed,
    Finished,
    FinishReason,
    ReasoningDelta,
    Started,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
)
from gateway.sse import LineFeeds, encode_sse
from wires.replicate.output import guarded

RARE_SEPARATORS = re.compile("([\v\f\x1c\x1d\x1e\x85\u2028\u2029])")
"""The Python client takes these for line ends and loses the rest of the line; alone in its event, only itself."""
KEEPALIVE = b": keep-alive\n\n"
OPENING = b": open\n\n"
"""Sent at once, so that a browser knows its connection is open before the model says anything."""


class EventEncoder:
    """`created` is the prediction's Unix second, the first half of each id; events up to number `after` are skipped."""

    def __init__(self, created: int, after: int = -1) -> None:
        self.count = 0
        """How many events there were, those left out included."""
        self._created = created
        self._after = after
        self._interrupted = 0
        self._lines = LineFeeds()

    def interrupt(self) -> None:
        """What comes now is this reader's own trouble and no part of the recording.

        Its ids lie between the recording's, so that a reader who comes back with one of them misses nothing.
        """
        self._interrupted = 1

    def encode(self, event: StreamEvent) -> Iterator[bytes]:
        match event:
            case TextDelta(text=text):
                for piece in self._pieces(text):
                    yield from self._frame("output", piece)
            case Started():
                yield OPENING
            case Finished(reason=FinishReason.CANCELLED):
                yield from self._frame("done", '{"reason": "canceled"}')
            case Finished():
                yield from self._frame("done", "{}")
            case Failed(error=error):
                yield from self._frame("error", json.dumps({"detail": error.message}))
                yield from self._frame("done", '{"reason": "error"}')
            case ReasoningDelta() | ToolCallStart() | ToolCallDelta() | AudioStart() | AudioDelta():
                return
            case _:
                assert_never(event)

    def _frame(self, name: str, data: str) -> Iterator[bytes]:
        if self._interrupted:
            id = f"{self._created}:{max(self.count - 1, self._after)}.{self._interrupted}"
            self._interrupted += 1
            yield encode_sse(data, event=name, id=id)
            return
        number, self.count = self.count, self.count + 1
        if number > self._after:
            yield encode_sse(data, event=name, id=f"{self._created}:{number}")

    def _pieces(self, text: str) -> Iterator[str]:
        """`text` with LF line ends, in pieces that clients keep whole."""
        for piece in RARE_SEPARATORS.split(self._lines.feed(text)):
            yield from guarded(piece)
