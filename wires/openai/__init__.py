"""The OpenAI wire: `/v1/...` as the official SDKs call it."""

from __future__ import annotations

from wires.openai import chat, models, realtime
from wires.openai.errors import WIRE

__all__ = ["ROUTERS", "WIRE"]

ROUTERS = (models.router, chat.router, *realtime.ROUTERS)
