"""The messages of one gRPC call. They are written in order, one at a time as grpc takes them, by whoever brings them:

the task of the call may sleep meanwhile, so a token goes to the client within the call of the event loop that read it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from opensearch.protobufs.schemas import common_pb2

from gateway.events import StreamEvent
from wires.opensearch.encoder import ContentEncoder

Writing = Coroutine[asyncio.Future[None], None, None]
Write = Callable[[Any], Writing]
"""`ServicerContext.write`: it serializes the message before it waits, and must have ended before the next begins."""

MOST_WAITING = 8
"""Messages behind the one that is written, before whoever brings the next has to wait."""


class MessageWriter:
    """Writes contents as PredictResponses, each behind the one before; `close` when the call ends."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._waiting: deque[tuple[str, bool]] = deque()
        self._writing: Writing | None = None
        self._failure: Exception | None = None
        self._taken: asyncio.Future[None] | None = None
        # One object for all messages: to build it costs six times what it costs to fill and serialize it.
        output = common_pb2.Output(name="response", data_as_map=common_pb2.DataAsMap())
        self._message = common_pb2.PredictResponse(inference_results=[common_pb2.InferenceResults(output=[output])])
        self._map = self._message.inference_results[0].output[0].data_as_map

    def ready(self) -> bool:
        """Whether more may be put before there is `progress`."""
        return len(self._waiting) < MOST_WAITING and self._failure is None

    def idle(self) -> bool:
        """Whether grpc has taken every message."""
        return self._writing is None and self._failure is None

    def put(self, contents: Iterable[str], *, last: bool = False) -> None:
        """Write one message for each of `contents`; at once, unless one is being written."""
        self._waiting.extend((content, last) for content in contents)
        if self._writing is None and self._failure is None:
            self._go_on()

    async def progress(self) -> None:
        """Return once grpc has taken the message that is being written. Raises what grpc raised."""
        if self._writing is not None:
            self._taken = asyncio.get_running_loop().create_future()
            await self._taken
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Begin no further message."""
        self._waiting.clear()

    def _go_on(self, _: object = None) -> None:
        """Write until grpc has to be waited for, without a task: the future that it waits for calls this again."""
        try:
            while self._writing is not None or self._waiting:
                if self._writing is None:
                    self._writing = self._write(self._filled(*self._waiting.popleft()))
                try:
                    self._writing.send(None).add_done_callback(self._go_on)
                except StopIteration:
                    self._writing = None
                    self._tell()
                else:
                    return
        except Exception as error:
            self._writing, self._failure = None, error
            self._tell()

    def _tell(self) -> None:
        """Wake who waits for progress."""
        if self._taken is not None and not self._taken.done():
            self._taken.set_result(None)

    def _filled(self, content: str, last: bool) -> Any:
        """Both fields are set also where they have their default, as the real server does."""
        self._map.content = sendable(content)
        self._map.is_last = last
        return self._message


class Shortcut:
    """Takes events while the task of their call sleeps."""

    def __init__(self, encoder: ContentEncoder, writer: MessageWriter) -> None:
        self._encoder = encoder
        self._writer = writer
        self.ready = writer.ready

    def take(self, items: Sequence[StreamEvent]) -> None:
        """Write the messages of events that are no stream's last ones."""
        self._writer.put(content for event in items for content in self._encoder.contents(event))


def sendable(text: str) -> str:
    """`text` as UTF-8 can carry it: protobuf and gRPC refuse lone surrogates."""
    return text.encode("utf-8", "replace").decode()
