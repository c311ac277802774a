"""What aiohttp does for every chunk of a body that it has no setting for: it resumes a connection that never paused.

That parses no bytes and asks the transport to read what it reads anyway, at each token of each stream.
"""

from __future__ import annotations

from aiohttp.client_proto import ResponseHandler

_resume = ResponseHandler.resume_reading


def resume_only_what_paused() -> None:
    """Have aiohttp's client connections resume only after a pause. A second call changes nothing."""
    ResponseHandler.resume_reading = _resume_if_paused  # type: ignore[method-assign]  # the same signature


def _resume_if_paused(self: ResponseHandler, resume_parser: bool = True) -> None:
    if self._reading_paused or self._buffer_paused:
        _resume(self, resume_parser)
