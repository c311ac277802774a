"""A prediction: one run that belongs to the service and outlives the request that began it."""

from __future__ import annotations

import base64
import hmac
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from msgspec import convert, to_builtins

from gateway.config import Kind
from gateway.errors import GatewayError
from gateway.events import Failed, Finished, FinishReason, Usage

PREDICTION = "prediction"
"""The kind of its document in a store."""
ID_LENGTH = 26
"""Characters of an id and of a secret: 16 random bytes in lower-case base32."""


class Status(StrEnum):
    """Where a prediction is on its way; the last three are final."""

    STARTING = "starting"
    PROCESSING = "processing"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is known of a run. Times are Unix seconds.

    `owner` is the hashed id of the key that created it, `worker` the process that runs it, `secret` what makes its
    stream URL unguessable. `input` and `notes` are the wire's own: what the caller sent, and what the wire must
    remember. `deadline` is when it is cancelled by itself.
    """

    id: str
    secret: str
    owner: str
    worker: str
    model: str
    kind: Kind
    created_at: float
    input: Mapping[str, Any] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)
    status: Status = Status.STARTING
    started_at: float | None = None
    completed_at: float | None = None
    deadline: float | None = None
    error: str | None = None
    usage: Usage | None = None

    @property
    def over(self) -> bool:
        """Whether the status is final."""
        return self.status not in (Status.STARTING, Status.PROCESSING)

    @property
    def terminal(self) -> Finished | Failed:
        """The last event of its stream, as far as the prediction itself tells."""
        match self.status:
            case Status.FAILED:
                return Failed(GatewayError(self.error or "", status=502, code="prediction_failed"))
            case Status.CANCELLED:
                return Finished(FinishReason.CANCELLED)
            case _:
                return Finished(FinishReason.STOP, self.usage)

    @property
    def token(self) -> str:
        """The capability that opens this prediction's stream to whoever holds it."""
        return self.id + self.secret

    def opened_by(self, token: str) -> bool:
        """Whether `token` is this prediction's, in constant time."""
        return hmac.compare_digest(token.encode(), self.token.encode())

    def started(self) -> Prediction:
        """The same prediction with its work begun."""
        return replace(self, status=Status.PROCESSING, started_at=time.time())

    def ended(self, terminal: Finished | Failed) -> Prediction:
        """The same prediction as `terminal` ended it."""
        now = time.time()
        match terminal:
            case Failed(error=error):
                return replace(self, status=Status.FAILED, completed_at=now, error=error.message)
            case Finished(reason=FinishReason.CANCELLED):
                return replace(self, status=Status.CANCELLED, completed_at=now)
            case Finished(usage=usage):
                return replace(self, status=Status.SUCCEEDED, completed_at=now, usage=usage)


def dump(prediction: Prediction) -> bytes:
    """The prediction as a store keeps it; escaped, since a caller's text may hold what UTF-8 cannot carry."""
    return json.dumps(to_builtins(prediction)).encode()


def load(value: bytes) -> Prediction:
    """A prediction out of a store."""
    return convert(json.loads(value), Prediction)


def random_id() -> str:
    """128 random bits as 26 characters."""
    return base64.b32encode(secrets.token_bytes(16)).decode().rstrip("=").lower()


def log_of(id: str) -> str:
    """The name of the log that a prediction's events are recorded in."""
    return f"{PREDICTION}:{id}"


def channel_of(worker: str) -> str:
    """The name of the signal that tells `worker` to stop a prediction of its own."""
    return f"worker:{worker}"
