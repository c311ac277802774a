"""WebSockets whose clients send small frames by the thousand: they wait for what they sent, and hold up nobody else.

uvicorn parses all that was received at one go, 256 KiB of perhaps 40,000 frames, and keeps what the application has not
taken yet without a bound.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from wires.endings import Ending
from wires.paces import ENDS

SLICE = 1024
"""Bytes that are parsed at a time: at most 170 frames."""
PINGS_AT_ONCE = 200
PINGS_PER_SECOND = 20.0
POLICY = 1008


class BoundedSocket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket; what the application does not take yet stays unparsed, and pings have a rate."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._unparsed = bytearray()
        self._parsing = self._hung_up = False
        self._pings = float(PINGS_AT_ONCE)
        self._pinged_at = self.loop.time()

    def connection_made(self, transport: Any) -> None:
        if isinstance(transport, Ending):
            transport.own(self)
        else:
            transport = Ending(transport, self)
        self._ending: Ending = transport
        super().connection_made(transport.as_transport)

    def data_received(self, data: bytes) -> None:
        self._unparsed += data
        if not self._parsing:
            self._parse()

    async def receive(self) -> Any:
        message = await super().receive()
        self._go_on()
        return message

    def send(self, message: Any) -> Any:
        # No frame of our own between the application and the socket, but at the end.
        return self._close(message) if message["type"] == "websocket.close" else super().send(message)

    async def _close(self, message: Any) -> None:
        await super().send(message)
        self._go_on()

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio heeds what it returns
        # At once where TLS closes it whatever this says.
        return self.scheme == "ws" and not ENDS.do(self._hang_up)

    def unheard(self) -> bool:
        """As Owner says: a refusal, or the end of who broke the rules. Any other close is answered by a close."""
        return self.close_sent and self.close_timer is None and self.conn.close_rcvd is None

    def said_goodbye(self) -> bool:
        """As Owner says."""
        return self.conn.close_sent is not None

    def shutdown(self) -> None:
        super().shutdown()
        self._ending.end()

    def keepalive_timeout(self) -> None:
        # Nobody is there to read the reason.
        super().keepalive_timeout()
        self._ending.end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ending.lost()
        # What came before the end is still said.
        self._end_of_input()
        if self._hung_up:
            self._end(exc)
        else:
            ENDS.do(partial(self._end, exc))

    def _hang_up(self) -> None:
        self._hung_up = True
        self._ending.end()

    def _end(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        # It refers to what refers to it; freed at once, an ended socket leaves no garbage to be looked for.
        self.conn.parser.close()

    def handle_ping(self) -> None:
        if self._may_ping() and self.writable.is_set():
            super().handle_ping()
            return
        # The pong is left out: RFC 6455 asks for one to the last ping only, and this client is not reading.
        self.conn.data_to_send()

    def handle_pong(self, event: Frame) -> None:
        if self._may_ping():
            super().handle_pong(event)

    def handle_cont(self, event: Frame) -> None:
        if event.data or event.fin or self._may_ping():
            super().handle_cont(event)

    def _go_on(self) -> None:
        if self._unparsed and not (self.read_paused or self._parsing):
            self._parsing = True
            self.loop.call_soon(self._parse)

    def _parse(self) -> None:
        """Parse slice by slice until the application has something to take; then the rest waits for it."""
        self._parsing = False
        unparsed, place = self._unparsed, 0
        while place < len(unparsed) and not (self.read_paused or self.transport.is_closing()):
            super().data_received(bytes(unparsed[place : place + SLICE]))
            place += SLICE
        del unparsed[:place]

    def _end_of_input(self) -> None:
        unparsed, self._unparsed = bytes(self._unparsed), bytearray()
        if unparsed and self.handshake_complete and not self.close_sent:
            self.read_paused = True
            super().data_received(unparsed)

    def _may_ping(self) -> bool:
        """Whether a frame that says nothing is within what a client may send of them; if not, it is let go."""
        now = self.loop.time()
        self._pings = min(PINGS_AT_ONCE, self._pings + (now - self._pinged_at) * PINGS_PER_SECOND) - 1
        self._pinged_at = now
        if self._pings >= 0:
            return True
        if not (self.close_sent or self.transport.is_closing()):
            self.conn.data_to_send()
            self.conn.fail(POLICY, "too many pings")
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
            # A flood is not waited for.
            self._ending.end()
        return False
