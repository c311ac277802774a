"""The Replicate wire: predictions that the service runs, read by polling or as server-sent events."""

from __future__ import annotations

from fastapi import APIRouter

from wires.replicate import files, models, predictions, streams, webhooks
from wires.replicate.errors import WIRE
from wires.replicate.webhooks import Webhooks

__all__ = ["ROUTERS", "WIRE", "Webhooks"]

OWN = (predictions.router, streams.router, models.router, files.router, webhooks.router)

doubled = APIRouter(prefix="/v1", include_in_schema=False)
"""`/v1/v1/...`: the Python client adds `/v1` to its base URL, its successor and the JavaScript client do not."""
for _router in OWN:
    doubled.include_router(_router)

ROUTERS = (*OWN, doubled)
