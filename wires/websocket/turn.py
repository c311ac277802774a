"""One turn on a `/ws` socket: its id, its counted messages, its timings and its one end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from gateway.errors import GatewayError
from gateway.events import AudioDelta, Finished, FinishReason, StreamEvent, TextDelta
from gateway.streams import EventStream
from wires.outbox import Outbox
from wires.websocket.frames import Frame, FrameEncoder, error_frame


class Turn:
    """A user-to-assistant exchange, or one text to speak. In the seed form (`bare`) only audio and errors are sent."""

    def __init__(self, turn_id: str, outbox: Outbox, request_id: str | None, *, bare: bool = False) -> None:
        self.id = turn_id
        self._texts: list[str] = []
        self.ended = False
        self.task: asyncio.Task[None] | None = None
        self._outbox = outbox
        self.ready = outbox.ready
        self._encoder = FrameEncoder(request_id)
        self._bare = bare
        self._seq = 0
        self._began = time.perf_counter()
        self._first_text: float | None = None
        self._first_audio: float | None = None

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(self._texts)

    async def play(self, events: AsyncIterator[StreamEvent]) -> None:
        """Send a stream to its end."""
        if isinstance(events, EventStream):
            events.hand_to(self)
        async for event in events:
            for frame in self._frames(event):
                await self._put(frame)

    def take(self, items: Sequence[StreamEvent]) -> None:
        """Send events, none of them the last one, while `ready`."""
        for event in items:
            for frame in self._frames(event):
                if (message := self._message(frame)) is not None:
                    self._outbox.put(message)

    def _frames(self, event: StreamEvent) -> Iterable[Frame]:
        if isinstance(event, AudioDelta):
            # Its frame is its bytes, fifty times a second.
            return (event.data,)
        if isinstance(event, TextDelta):
            self._texts.append(event.text)
        return self._encoder.encode(event)

    async def transcript(self, text: str) -> None:
        """Say what was understood of the user's speech, before it is answered."""
        await self._put({"type": "transcript", "text": text})

    async def fail(self, error: GatewayError) -> None:
        """End the turn by an error, unless it has ended."""
        if not self.ended:
            await self._put(error_frame(error))

    async def cancelled(self) -> None:
        """End the turn as cancelled, unless it has ended; its task is over, so no audio can follow."""
        if not self.ended:
            for frame in self._encoder.encode(Finished(FinishReason.CANCELLED)):
                await self._put(frame)

    async def _put(self, frame: Frame) -> None:
        message = self._message(frame)
        if isinstance(message, bytes):
            await self._outbox.audio(message)
        elif message is not None:
            await self._outbox.json(message)

    def _message(self, frame: Frame) -> Frame | None:
        """The message that says `frame`, None where the seed form says nothing."""
        if isinstance(frame, bytes):
            self._first_audio = self._first_audio or time.perf_counter()
            return frame
        kind = frame["type"]
        if kind == "text":
            self._first_text = self._first_text or time.perf_counter()
        elif kind == "finished":
            frame["timings"] = self._timings()
        self.ended = self.ended or kind in ("finished", "error")
        if self._bare and kind != "error":
            return None
        seq, self._seq = self._seq, self._seq + 1
        return {"type": kind, "id": self.id, "seq": seq, **frame}

    def _timings(self) -> dict[str, Any]:
        """Milliseconds since the turn was asked for; null for what did not happen."""
        return {
            "ttft_ms": _milliseconds(self._began, self._first_text),
            "ttfa_ms": _milliseconds(self._began, self._first_audio),
            "total_ms": _milliseconds(self._began, time.perf_counter()),
        }


def _milliseconds(began: float, at: float | None) -> float | None:
    return None if at is None else round((at - began) * 1000, 1)
