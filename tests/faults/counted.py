"""The service as it is, with two more routes: how many tasks its loop has, and how much garbage it had so far."""

from __future__ import annotations

import asyncio
import gc

from starlette.requests import Request
from starlette.responses import PlainTextResponse

from service import Polywire, app

__all__ = ["Polywire"]


async def tasks(_: Request) -> PlainTextResponse:
    return PlainTextResponse(str(len(asyncio.all_tasks())))


async def garbage(_: Request) -> PlainTextResponse:
    gc.collect()
    return PlainTextResponse(str(sum(generation["collected"] for generation in gc.get_stats())))


app.add_route("/tasks", tasks)
app.add_route("/garbage", garbage)
