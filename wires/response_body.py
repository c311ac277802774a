"""A streamed response on its way to the server: by ASGI's messages, or past them where the server has a short way."""

from __future__ import annotations

import asyncio
from typing import Protocol

from starlette.types import Message, Send

from gateway.config import Limits
from gateway.patience import Waited, WaitLimit

SHORT_WAY = "polywire.short_way"
"""Where a scope keeps its `ShortWay`, if its server has one."""


class ShortWay(Protocol):
    """Between a wire and its client's connection: past every middleware, none of which looks at parts of a body."""

    def received(self) -> bytes | None:
        """The request's body, once, where all of it came with the head."""

    def flows(self) -> bool:
        """Whether the client reads, so that what is sent now waits for nothing."""

    def ready(self) -> bool:
        """Whether the head was sent, the client reads, and a part may be sent."""

    def put(self, data: bytes, *, last: bool = False) -> None:
        """Send one part of the body, while `ready`: at once or, as the `last`, together with the body's end."""


class ResponseBody:
    """The response's messages: the head before the first frame, keep-alives in silence, a limit on stalled sends."""

    def __init__(
        self, send: Send, way: ShortWay | None, head: Message, limits: Limits, keepalive: bytes | None
    ) -> None:
        self._send = send
        self._way = way
        self._head = head
        self._stall = limits.send_stall_seconds
        self._every = limits.keepalive_seconds
        self._keepalive = keepalive
        self._loop = asyncio.get_running_loop()
        self._wait = WaitLimit()
        self._last = self._loop.time()
        self._pinging: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(self._every, self._ring) if keepalive else None
        self.started = False

    async def send(self, data: bytes, *, last: bool = False) -> None:
        """Send frames, if any, after the head if they are the first. Raises Waited when the client accepts nothing."""
        if not data:
            return
        if self._pinging is None and self._way is not None and self._way.flows():
            await self._put(data, self._way, last=last)
        else:
            with self._wait.bounded(self._stall):
                await self._quiet()
                await self._put(data)
        self.sent()

    async def _put(self, data: bytes, way: ShortWay | None = None, *, last: bool = False, more: bool = True) -> None:
        if not self.started:
            self.started = True
            await self._send(self._head)
        if way is not None and way.ready():
            way.put(data, last=last)
        else:
            await self._send(_message(data, more))

    @property
    def quiet(self) -> bool:
        """Whether no keep-alive is being sent."""
        return self._pinging is None or self._pinging.done()

    def sent(self) -> None:
        """Something was sent: a keep-alive has time."""
        self._last = self._loop.time()

    async def end(self) -> None:
        """Send the head if nothing was, and the end of the body, unless the client accepts nothing."""
        if self._way is not None and self._way.flows():
            await self._put(b"", more=False)
            return
        try:
            with self._wait.bounded(self._stall):
                await self._put(b"", more=False)
        except Waited:
            return
        finally:
            self._wait.stop()

    async def stop(self) -> None:
        """Drop the timers and a keep-alive that is being sent."""
        self._wait.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pinging is not None:
            self._pinging.cancel()
            await asyncio.gather(self._pinging, return_exceptions=True)

    async def _quiet(self) -> None:
        if self._pinging is not None:
            pinging, self._pinging = self._pinging, None
            await pinging

    def _ring(self) -> None:
        silent = self._loop.time() - self._last
        if silent < self._every:
            self._timer = self._loop.call_later(self._every - silent, self._ring)
            return
        if self.quiet:
            self._pinging = self._loop.create_task(self._ping())
        self._timer = self._loop.call_later(self._every, self._ring)

    async def _ping(self) -> None:
        await self._put(self._keepalive or b"")
        self.sent()


def _message(body: bytes, more: bool) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}
