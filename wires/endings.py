"""How a connection ends: its client gets to read the answer first, and none is held open for who reads nothing.

A system that has closed a socket answers all that still comes with a reset, at which clients drop an answer that they
have not read. So where a client may still be sending, only our side ends, and what comes is thrown away within bounds
(RFC 9112, 9.6).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, cast
from weakref import ref

from wires.paces import ENDS

SECONDS = 20.0
QUIET_SECONDS = 0.5
MOST_BYTES = 20 * 1024 * 1024
MOST_LINGERING = 256
"""Connections that may linger at the same time; then the one goes that has done so for longest."""


class Owner(Protocol):
    """A server's protocol whose connection it is."""

    def unheard(self) -> bool:
        """Whether what was written is an answer to a client that may still be sending."""

    def said_goodbye(self) -> bool:
        """Whether that answer says itself that it is the last word, and is answered: a WebSocket's close frame."""

    def data_received(self, data: bytes) -> None: ...
    def eof_received(self) -> bool | None: ...
    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class Ending:
    """The transport that an `Owner` knows. `close` lingers where that is unheard.

    At its end a client that has read nothing more for `seconds` is let go; an answer that is being read is read whole.
    """

    __slots__ = ("_clock", "_lingering", "_owner", "_transport", "_unread", "most_bytes", "seconds", "write")

    write: Callable[[bytes], None]

    def __init__(
        self, transport: asyncio.Transport, owner: Owner, seconds: float = SECONDS, most_bytes: int = MOST_BYTES
    ) -> None:
        self.seconds, self.most_bytes = seconds, most_bytes
        # Not a method of this class, which would be one more call for each token.
        self.write = transport.write
        self._transport = transport
        self._clock: asyncio.TimerHandle | None = None
        self._unread = 0
        self._lingering: _Lingering | None = None
        self.own(owner)

    @property
    def as_transport(self) -> asyncio.Transport:
        """This, as far as the server's protocols use one."""
        return cast(asyncio.Transport, self)

    def own(self, owner: Owner) -> None:
        """From now on the connection is that of `owner`."""
        self._owner = ref(owner)

    def close(self) -> None:
        """End the connection after what was written."""
        if self.is_closing():
            return
        owner = self._owner()
        if owner is not None and owner.unheard():
            self.linger()
        else:
            self.end()

    def linger(self) -> None:
        """End our side after what was written, and throw away what the client still sends until it ends its own."""
        owner = self._owner()
        if self.is_closing() or owner is None:
            return
        self._lingering = _Lingering(self, owner, self.most_bytes)
        self.write = _throw_away
        self._transport.set_protocol(self._lingering)
        self._transport.resume_reading()
        self._bound()
        if owner.said_goodbye():
            # The end of our side would have clients close in the middle of what they send.
            self._lingering.until_silence()
        elif self._transport.can_write_eof():
            try:
                self._transport.write_eof()
            except OSError:
                self.end()

    def end(self) -> None:
        """Close after what was written, whatever the client does."""
        if self._transport.is_closing():
            return
        self._transport.close()
        if self._transport.get_write_buffer_size():
            self._bound()

    def lost(self) -> None:
        """The connection is no more."""
        self.write = _throw_away
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def is_closing(self) -> bool:
        return self._lingering is not None or self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        if self._lingering is None:
            self._transport.set_protocol(protocol)

    def _bound(self) -> None:
        if self._clock is None:
            self._unread = self._transport.get_write_buffer_size()
            self._clock = asyncio.get_running_loop().call_later(self.seconds, self._leave_unless_read)

    def _leave_unless_read(self) -> None:
        self._clock = None
        if self._transport.get_write_buffer_size() < self._unread:
            self._bound()
        else:
            self._transport.abort()


class _Lingering(asyncio.Protocol):
    """Stands for the owner of a connection on which nothing more is said."""

    everybody: ClassVar[dict[_Lingering, None]] = {}
    """Oldest first."""

    def __init__(self, ending: Ending, owner: Owner, most_bytes: int) -> None:
        self._ending = ending
        self._owner = owner
        self._bytes_left = most_bytes
        self._quiet: asyncio.TimerHandle | None = None
        self._something_came = True
        self.everybody[self] = None
        if len(self.everybody) > MOST_LINGERING:
            next(iter(self.everybody))._leave()

    def until_silence(self) -> None:
        """Leave as soon as nothing comes any more."""
        if self._something_came:
            self._something_came = False
            self._quiet = asyncio.get_running_loop().call_later(QUIET_SECONDS, self.until_silence)
        else:
            self._leave()

    def data_received(self, data: bytes) -> None:
        self._something_came = True
        self._bytes_left -= len(data)
        if self._bytes_left < 0:
            self._leave()

    def eof_received(self) -> bool:
        # TLS closes it whatever this says.
        return self._ending.get_extra_info("sslcontext") is None and not ENDS.do(self._leave)

    def connection_lost(self, exc: Exception | None) -> None:
        self.everybody.pop(self, None)
        if self._quiet is not None:
            self._quiet.cancel()
        self._owner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._owner.pause_writing()

    def resume_writing(self) -> None:
        self._owner.resume_writing()

    def _leave(self) -> None:
        self.everybody.pop(self, None)
        self._ending.end()


def lingering() -> int:
    """How many connections of this process have had their answer, and are open for it to be read."""
    return len(_Lingering.everybody)


def _throw_away(_data: bytes) -> None:
    """What is said after the end."""
