"""A worker does not outlive its supervisor: killed, that one can tell nobody to stop, and the port would stay taken."""

from __future__ import annotations

import asyncio
import logging
import os
import signal

log = logging.getLogger("polywire")


def leave_with_supervisor() -> None:
    """In a worker: once the process that started it is gone, stop as at a SIGTERM. Only Linux tells of it."""
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

    loop.add_reader(supervisor, leave)
