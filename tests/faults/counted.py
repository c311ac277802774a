"""The service as it is, with one more route: how many tasks its loop has."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import PlainTextResponse

from service import Polywire, app

__all__ = ["Polywire"]


async def tasks(_: Request) -> PlainTextResponse:
    return PlainTextResponse(str(len(asyncio.all_tasks())))


app.add_route("/tasks", tasks)
