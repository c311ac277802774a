"""A provider's server-sent events. One that has no end is the provider's failure, and says whose."""

from __future__ import annotations

from gateway.config import ProviderRow
from gateway.errors import UpstreamError
from gateway.sse import EventTooLong, ServerSentEvent, SseDecoder


def completed_events(row: ProviderRow, decoder: SseDecoder, data: bytes) -> list[ServerSentEvent]:
    """The events that `data` completes. Raises UpstreamError for one that is longer than any provider's."""
    try:
        return decoder.feed(data)
    except EventTooLong as error:
        raise UpstreamError(f"Provider {row.name!r}: {error}.", provider=row.name) from error
