"""The OpenAI wire: `/v1/...` as the official SDKs call it."""

from __future__ import annotations

import re

from fastapi import APIRouter

from wires.base import Wire
from wires.openai import chat, models
from wires.openai.errors import error_response

router = APIRouter(tags=["OpenAI"])
router.include_router(models.router)
router.include_router(chat.router)

WIRE = Wire("openai", re.compile(r"/v1(/.*)?"), error_response, router)
