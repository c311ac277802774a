"""A second Ctrl-C for the workers. BentoML's supervisor turns the first into their SIGTERM and drops all others."""

from __future__ import annotations

import signal

import psutil
from circus.sighandler import SysHandler

quit_once = SysHandler.handle_int


def pass_on_second_interrupt() -> None:
    """In the supervisor, before it starts: its second SIGINT goes to the workers, which then drain no longer."""
    SysHandler.handle_int = _handle_int


def _handle_int(handler: SysHandler) -> None:
    if not getattr(handler, "interrupted", False):
        handler.interrupted = True
        quit_once(handler)
        return
    for worker in psutil.Process().children():
        worker.send_signal(signal.SIGINT)
