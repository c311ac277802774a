"""Webhooks: tell a trusted URL how a prediction goes. Each prediction that wants them has one task of the service.

`start` and `completed` are always sent, `output` at most twice a second with the output so far; a delivery may come
twice, so receivers must be idempotent.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import secrets
from collections.abc import Sequence

from fastapi import APIRouter, Request
from starlette.responses import Response

from gateway.addresses import resolve_public
from gateway.config import Settings
from gateway.errors import Forbidden, GatewayError, NotFound
from gateway.events import TextDelta
from gateway.ports import Store
from gateway.prediction import Prediction, Status, random_id
from gateway.predictions import Predictions
from wires.replicate.errors import REFUSALS, JsonResponse, invalid
from wires.replicate.objects import prediction_object
from wires.replicate.output import output_of
from wires.replicate.webhook_delivery import Target, parse_target, post

router = APIRouter(tags=["Replicate"], responses=REFUSALS)
log = logging.getLogger("polywire")

OUTPUT_SECONDS = 0.5
RETRY_SECONDS = (0.5, 2.0, 8.0)


class Webhooks:
    """Sends what predictions asked for. `deliver` is an observer of `Predictions`."""

    def __init__(self, settings: Settings, store: Store, predictions: Predictions) -> None:
        self._settings = settings.webhooks
        self._configured = settings.webhook_secret
        self._store = store
        self._predictions = predictions

    async def check(self, url: str) -> None:
        """Raises InvalidRequest unless webhooks may be sent to `url`."""
        target = parse_target(url, self._settings)
        try:
            await resolve_public(target.host, target.port, allow_loopback=self._settings.allow_loopback)
        except Forbidden as error:
            raise invalid(f"webhook: {error.message}", "webhook") from error

    async def secret(self) -> str:
        """The secret that signs: the configured one, else one made at random and kept in the store."""
        if self._configured is not None:
            return self._configured.get_secret_value()
        made = "whsec_" + base64.b64encode(secrets.token_bytes(24)).decode()
        await self._store.add("secret", "webhooks", made.encode(), owner="")
        document = await self._store.get("secret", "webhooks")
        return document.value.decode() if document is not None else made

    async def deliver(self, prediction: Prediction) -> None:
        """Follow `prediction` and send what it asked for, to its end."""
        url, wanted = prediction.notes.get("webhook"), prediction.notes.get("webhook_events_filter", ())
        if not url:
            return
        target = parse_target(url, self._settings)
        if not prediction.over:
            await self._accompany(prediction, target, wanted)
        if "completed" in wanted:
            final = await self._now(prediction)
            if final is not None:
                await self._send(target, final, RETRY_SECONDS)

    async def _accompany(self, prediction: Prediction, target: Target, wanted: Sequence[str]) -> None:
        if "start" in wanted:
            await self._send(target, prediction, RETRY_SECONDS)
        loop = asyncio.get_running_loop()
        sent_at = loop.time() - OUTPUT_SECONDS
        async with self._predictions.follow(prediction) as events:
            async for event in events:
                due = loop.time() - sent_at >= OUTPUT_SECONDS
                if "output" in wanted and due and isinstance(event, TextDelta):
                    sent_at = loop.time()
                    current = await self._now(prediction)
                    if current is not None:
                        await self._send(target, current, ())

    async def _now(self, prediction: Prediction) -> Prediction | None:
        try:
            return await self._predictions.get(prediction.id, prediction.owner)
        except NotFound:
            return None

    async def _send(self, target: Target, prediction: Prediction, pauses: Sequence[float]) -> None:
        base: str = prediction.notes["base"]
        unstarted = prediction.status is Status.STARTING
        output = None if unstarted else await output_of(self._predictions, prediction, base)
        raw, id, secret = (
            json.dumps(prediction_object(prediction, output, base)).encode(),
            f"msg_{random_id()}",
            await self.secret(),
        )
        for pause in (*pauses, None):
            try:
                status = await post(target, self._settings, secret=secret, id=id, body=raw)
            except (OSError, TimeoutError, GatewayError) as error:
                log.warning("the webhook of prediction %s failed: %s", prediction.id, type(error).__name__)
            else:
                if status < 500 and status != 429:
                    return
            if pause is not None:
                await asyncio.sleep(pause)


def webhooks_of(request: Request) -> Webhooks:
    """The webhooks that the application sends."""
    found: Webhooks = request.app.state.webhooks
    return found


@router.get("/v1/webhooks/default/secret")
async def get_secret(request: Request) -> Response:
    """The secret with which a receiver checks signatures."""
    return JsonResponse({"key": await webhooks_of(request).secret()})
