"""Hears that the process is told to stop, before the server does: it would first wait for every open stream to end."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def on_stop(callback: Callable[[], object]) -> Iterator[None]:
    """Within the block, `callback` runs in the event loop at SIGTERM or SIGINT; the server's own handler runs as well.

    Where there is no server with such a handler, nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    handlers = {number: handler for number in SIGNALS if callable(handler := signal.getsignal(number))}

    def told(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(callback)
        handlers[signal.Signals(number)](number, frame)

    for number in handlers:
        signal.signal(number, told)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
