"""The OpenAI wire: `/v1/...` as the official SDKs call it."""

from __future__ import annotations

from wires.openai import chat, completions, models, realtime, speech, transcriptions
from wires.openai.errors import WIRE
from wires.openai.responses import routes as responses

__all__ = ["ROUTERS", "WIRE"]

ROUTERS = (
    models.router,
    chat.router,
    completions.router,
    responses.router,
    speech.router,
    transcriptions.router,
    *realtime.ROUTERS,
)
