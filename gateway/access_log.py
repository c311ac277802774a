"""Where log lines go: one JSON line for each request and stream, and the loggers beside them."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from typing import TextIO

from pydantic_core import to_json

access_log = logging.getLogger("polywire.access")
RECORD = vars(logging.LogRecord(access_log.name, logging.INFO, "", 0, "", None, None))
"""What the records of all lines have in common; each would look for its thread, process and path again."""


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes lines as they are; the way of a record through a logger and a Formatter costs more than the writing."""

    def emit(self, record: logging.LogRecord) -> None:
        self.write(str(record.msg))

    def write(self, line: str) -> None:
        """Write one line, past the logger."""
        try:
            self.stream.write(f"{line}\n")
            self.stream.flush()
        except Exception:
            self.handleError(_record(line))


def configure_logging() -> None:
    """Send Polywire's own loggers to stderr: JSON lines as they are, everything else with its level."""
    for name, kind in (("polywire.access", LineHandler), ("polywire", logging.StreamHandler)):
        logger = logging.getLogger(name)
        if logger.handlers:
            continue
        handler = kind(sys.stderr)
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False


def write_line(line: Mapping[str, object]) -> None:
    """Write `line` as JSON."""
    if not access_log.isEnabledFor(logging.INFO):
        return
    text = to_json(line).decode()
    match access_log.handlers:
        case [LineHandler() as handler] if not (access_log.propagate or access_log.filters):
            handler.write(text)
        case _:
            # Somebody has handlers, levels or filters of their own.
            access_log.handle(_record(text))


def _record(line: str) -> logging.LogRecord:
    # Not made by `access_log.info`, which looks for its caller through the stack.
    record = logging.LogRecord.__new__(logging.LogRecord)
    vars(record).update(RECORD, msg=line, created=time.time())
    return record
