"""The section `limits:` of the settings: how much and how long of everything."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Limits(BaseModel):
    """Bounds of one worker; those per minute and `streams_per_key` hold for all workers and replicas together.

    Seconds are wall time; `streams` counts streams at work on all wires. `all_...`, `streams` and `sockets` hold for
    all keys together, the other counts for each. None: no bound.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    request_bytes: int = Field(default=20 * 1024 * 1024, gt=0)
    prompt_characters: int = Field(default=400_000, gt=0)
    streams: int = Field(default=1000, gt=0)
    first_event_seconds: float = Field(default=60, gt=0)
    idle_seconds: float = Field(default=60, gt=0)
    keepalive_seconds: float = Field(default=10, gt=0)
    send_stall_seconds: float = Field(default=60, gt=0)
    prediction_ttl_seconds: float = Field(default=3600, gt=0)
    drain_seconds: float = Field(default=10, ge=0)
    socket_idle_seconds: float = Field(default=600, gt=0)
    header_bytes: int = Field(default=64 * 1024, ge=1024)
    header_seconds: float = Field(default=20, gt=0)
    body_stall_seconds: float = Field(default=30, gt=0)
    connections: int = Field(default=12_000, gt=0)
    sockets: int = Field(default=10_000, gt=0)
    sockets_per_key: int | None = Field(default=None, gt=0)
    streams_per_key: int | None = Field(default=None, gt=0)
    requests_per_minute: int | None = Field(default=None, gt=0)
    all_requests_per_minute: int | None = Field(default=None, gt=0)
    tokens_per_minute: int | None = Field(default=None, gt=0)
    all_tokens_per_minute: int | None = Field(default=None, gt=0)
    handshakes_per_minute: int | None = Field(default=None, gt=0)
