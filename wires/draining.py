"""Learns at once that the process is asked to end.

uvicorn tells the application only after its last connection is gone, and until then other servers of this process
would go on taking requests.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def on_stop_signal(begin: Callable[[], None]) -> Iterator[None]:
    """Call `begin` in the event loop at the first SIGTERM or SIGINT, beside whoever handles them already."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    asked = False

    def asked_to_end(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if not asked:
            asked = True
            loop.call_soon_threadsafe(begin)
        previous = before[signal.Signals(number)]
        if callable(previous):
            previous(number, frame)

    for number in before:
        signal.signal(number, asked_to_end)
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
