"""`GET /metrics`, for Prometheus; it asks for a key like every other route."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from gateway.exposition import CONTENT_TYPE, exposition
from gateway.tally import WRITE_SECONDS
from gateway.telemetry import tally
from wires.base import gateway_of

router = APIRouter(tags=["Operation"])


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """The series of all workers, with all that they have counted until now."""
    tally.write()
    if gateway_of(request).settings.workers > 1:
        # By then the others have written as well.
        await asyncio.sleep(WRITE_SECONDS)
    return Response(await asyncio.to_thread(exposition), media_type=CONTENT_TYPE)
