"""`GET /metrics`, for Prometheus; it asks for a key like every other route."""

from __future__ import annotations

from asyncio import to_thread

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from gateway.exposition import CONTENT_TYPE, exposition
from gateway.telemetry import tally

router = APIRouter(tags=["Operation"])


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics() -> Response:
    """The series of all workers."""
    tally.write()
    return Response(await to_thread(exposition), media_type=CONTENT_TYPE)
