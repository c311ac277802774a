"""`GET /metrics`, for Prometheus; it asks for a key like every other route."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from gateway.exposition import CONTENT_TYPE, exposition

router = APIRouter(tags=["Operation"])


@router.get("/metrics", response_class=PlainTextResponse)
def metrics() -> Response:
    """The series of all workers. Not `async`: reading them is done in a thread."""
    return Response(exposition(), media_type=CONTENT_TYPE)
