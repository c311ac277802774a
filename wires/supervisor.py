"""A worker does not outlive its supervisor: killed, that one can tell nobody to stop, and the port would stay taken."""

from __future__ import annotations

import asyncio
import logging
import os
import signal

log = logging.getLogger("polywire")


SUPERVISOR = "POLYWIRE_SUPERVISOR_PID"
"""The variable by which workers know whose they are: one that starts while it is killed has another parent already."""


def name_supervisor() -> None:
    """In the supervisor, before it starts its workers."""
    os.environ[SUPERVISOR] = str(os.getpid())


def leave_with_supervisor() -> None:
    """In a worker: once its supervisor is gone, stop as at a SIGTERM. Only Linux tells of it."""
    pid = int(os.environ.get(SUPERVISOR, os.getppid()))
    try:
        supervisor = os.pidfd_open(os.getppid())
    except (AttributeError, OSError):
        return
    loop = asyncio.get_running_loop()

    def leave() -> None:
        loop.remove_reader(supervisor)
        os.close(supervisor)
        log.warning("the supervisor is gone, so this worker leaves as well")
        os.kill(os.getpid(), signal.SIGTERM)

    if os.getppid() == pid:
        loop.add_reader(supervisor, leave)
    else:
        loop.call_soon(leave)
