"""A plain relay: FastAPI and the openai package, one model object per chunk. `UPSTREAM` is the base URL."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from openai import AsyncOpenAI

app = FastAPI()
client = AsyncOpenAI(base_url=os.environ.get("UPSTREAM"), api_key="none", max_retries=0)


@app.post("/v1/chat/completions")
async def chat(body: dict[str, Any]) -> StreamingResponse:
    """Stream an answer."""
    chunks = await client.chat.completions.create(**body)

    async def frames() -> AsyncIterator[str]:
        async for chunk in chunks:
            yield f"data: {chunk.model_dump_json(exclude_unset=True)}\n\n"
        yield "data: [DONE]\n\n"

    return StreamingResponse(frames(), media_type="text/event-stream")
