"""`POST /v1/realtime/client_secrets`: a key for a browser, with the session that it begins."""

from __future__ import annotations

import time
from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import Field

from wires.base import gateway_of
from wires.client_keys import ClientKey, ClientKeys
from wires.openai.errors import REFUSED
from wires.openai.realtime.configuration import Section, opened
from wires.openai.realtime.outgoing import new_id
from wires.openai.realtime.requests import session_body, target_of

router = APIRouter(tags=["OpenAI"])


class ExpiresAfter(Section):
    anchor: Literal["created_at"] = "created_at"
    seconds: int = Field(default=600, ge=10, le=7200)


class SecretBody(Section):
    """The request body."""

    expires_after: ExpiresAfter | None = None
    session: dict[str, Any] | None = None


@router.post("/v1/realtime/client_secrets", responses=REFUSED)
async def create(request: Request, body: SecretBody | None = None) -> dict[str, Any]:
    """Issue a key that may open sessions until it expires."""
    gateway = gateway_of(request)
    asked = body or SecretBody()
    session = {"type": "realtime", **(asked.session or {})}
    config = opened(session)
    model = (await target_of(gateway, config, session.get("model"))).model.id
    expires_at = int(time.time()) + (asked.expires_after or ExpiresAfter()).seconds
    value = ClientKeys(gateway.settings).issue(ClientKey(expires_at, {**session, "model": model}))
    return {
        "value": value,
        "expires_at": expires_at,
        "session": session_body(config, new_id("sess"), model, expires_at, gateway),
    }
