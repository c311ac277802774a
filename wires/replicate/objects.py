"""The prediction object: what every answer about a prediction, and every webhook, is made of."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from fastapi import Request

from gateway.prediction import Prediction, Status
from wires.base import gateway_of

HOST = re.compile(r"[A-Za-z0-9.-]+(:\d{1,5})?|\[[0-9A-Fa-f:.]+\](:\d{1,5})?")
STATUSES = {Status.CANCELLED: "canceled"}


def base_url(request: Request) -> str:
    """Where the caller reaches us: `public_url` if it is set, else the host that this very caller named.

    Forwarded headers are not looked at: behind a proxy that ends TLS, set `public_url`.
    """
    configured = gateway_of(request).settings.public_url
    if configured:
        return configured.rstrip("/")
    host = request.headers.get("host", "")
    if not HOST.fullmatch(host):
        server = request.scope.get("server") or ("127.0.0.1", 80)
        host = f"{server[0]}:{server[1]}"
    return f"{request.url.scheme}://{host}"


def prediction_object(prediction: Prediction, output: object, base: str) -> dict[str, Any]:
    """A prediction with its true status. `urls.stream` is there only for what can stream, and never null."""
    urls = {
        "web": f"{base}/v1/predictions/{prediction.id}",
        "get": f"{base}/v1/predictions/{prediction.id}",
        "cancel": f"{base}/v1/predictions/{prediction.id}/cancel",
    }
    if prediction.kind == "chat":
        urls["stream"] = f"{base}/v1/streams/{prediction.token}"
    notes = prediction.notes
    body = {
        "id": prediction.id,
        "model": prediction.model,
        "version": notes["version"],
        "input": prediction.input,
        "logs": "",
        "output": output,
        "data_removed": False,
        "error": prediction.error,
        "source": "api",
        "status": STATUSES.get(prediction.status, str(prediction.status)),
        "created_at": timestamp(prediction.created_at),
        "started_at": timestamp(prediction.started_at),
        "completed_at": timestamp(prediction.completed_at),
        "deadline": timestamp(prediction.deadline),
        "deployment": notes["deployment"],
        "metrics": metrics(prediction),
        "urls": urls,
    }
    if notes["webhook"]:
        body |= {"webhook": notes["webhook"], "webhook_events_filter": notes["webhook_events_filter"]}
    return body


def unstarted_object(prediction: Prediction, base: str) -> dict[str, Any]:
    """The answer to a create whose prediction is not over: `starting` without output, whatever it has done by now.

    Clients take any other status for the end, and skip what is in the output already.
    """
    return prediction_object(prediction, None, base)


def metrics(prediction: Prediction) -> dict[str, Any]:
    """Seconds of work and in all, and the tokens where the provider counted them."""
    found: dict[str, Any] = {}
    if prediction.completed_at is not None:
        found["predict_time"] = round(prediction.completed_at - (prediction.started_at or prediction.completed_at), 6)
        found["total_time"] = round(prediction.completed_at - prediction.created_at, 6)
    if prediction.usage is not None:
        found["input_token_count"] = prediction.usage.input_tokens
        found["output_token_count"] = prediction.usage.output_tokens
    return found


def timestamp(seconds: float | None) -> str | None:
    """ISO 8601 with microseconds and Z."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
