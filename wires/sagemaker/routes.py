"""The routes: `/ping` and `/invocations` (container, also AgentCore's), `/endpoints/...` (runtime API), `/lambda`."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterator

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from gateway.catalog import Gateway
from gateway.completion import collect
from gateway.errors import Forbidden, InvalidRequest
from gateway.events import Failed, StreamEvent
from wires.base import Encoder, StreamResponse, Wire, gateway_of
from wires.documents import JSON, answers, any_of, takes
from wires.sagemaker.errors import CONTAINER, CONTAINER_REFUSALS, FUNCTION, FUNCTION_REFUSALS, RUNTIME, RUNTIME_REFUSALS
from wires.sagemaker.framing import model_stream_error, payload_part
from wires.sagemaker.invocation import SCHEMA, Invocation, parse

router = APIRouter(tags=["SageMaker"])

KEEPALIVE = b":\n\n"
FRAMES = "application/vnd.amazon.eventstream"
VARIANT = {"x-amzn-invoked-production-variant": "AllTraffic"}
SHA256 = re.compile(r"[0-9A-Fa-f]{64}")
WHOLE_OR_STREAMED = answers(JSON, "text/event-stream", schema=any_of("object", "array"))


@router.get("/ping", responses=CONTAINER_REFUSALS)
async def ping(request: Request) -> dict[str, object]:
    """Healthy, and whether streams run; AgentCore ends a busy session whose ping does not say since when."""
    gateway_of(request).stopping.demand()
    busy, since = gateway_of(request).activity
    return {"status": "HealthyBusy" if busy else "Healthy", "time_of_last_update": int(since)}


@router.post("/invocations", responses=WHOLE_OR_STREAMED | CONTAINER_REFUSALS, openapi_extra=takes(SCHEMA))
async def invoke_container(request: Request) -> Response:
    """Answer in the form that the body asks for, streamed with `"stream": true`."""
    return await _answer(gateway_of(request), parse(await request.body()), CONTAINER)


@router.post("/lambda", responses=WHOLE_OR_STREAMED | FUNCTION_REFUSALS, openapi_extra=takes(SCHEMA))
async def invoke_function(request: Request) -> Response:
    """A Lambda function URL: the same bodies, with the payload's hash checked."""
    gateway = gateway_of(request)
    body = await request.body()
    declared = request.headers.get("x-amz-content-sha256")
    check_hash(declared, body, required=gateway.settings.function_url.require_sha256)
    return await _answer(gateway, parse(body), FUNCTION)


@router.post(
    "/endpoints/{endpoint}/invocations",
    responses=WHOLE_OR_STREAMED | RUNTIME_REFUSALS,
    openapi_extra=takes(SCHEMA),
)
async def invoke_endpoint(request: Request, endpoint: str) -> Response:
    """The runtime API's InvokeEndpoint; the endpoint's name is a model id."""
    response = await _answer(gateway_of(request), parse(await request.body()).to(endpoint), RUNTIME)
    response.headers.update(VARIANT)
    return response


@router.post(
    "/endpoints/{endpoint}/invocations-response-stream",
    response_class=Response,
    responses=answers(FRAMES) | RUNTIME_REFUSALS,
    openapi_extra=takes(SCHEMA),
)
async def invoke_endpoint_with_response_stream(request: Request, endpoint: str) -> Response:
    """The runtime API's InvokeEndpointWithResponseStream: the same bytes in event-stream frames."""
    gateway = gateway_of(request)
    invocation = parse(await request.body()).to(endpoint)
    if not invocation.stream:
        whole = await _answer(gateway, invocation, RUNTIME)
        headers = {**VARIANT, "x-amzn-sagemaker-content-type": "application/json"}
        return Response(payload_part(bytes(whole.body)), media_type=FRAMES, headers=headers)
    return StreamResponse(
        RUNTIME,
        lambda: gateway.chat(invocation.request, wire=RUNTIME.name),
        FramedEncoder(invocation.form.encoder()),
        limits=gateway.settings.limits,
        media_type=FRAMES,
        headers={**VARIANT, "x-amzn-sagemaker-content-type": "text/event-stream"},
        keepalive=payload_part(KEEPALIVE),
    )


async def _answer(gateway: Gateway, invocation: Invocation, wire: Wire) -> Response:
    if invocation.stream:
        return StreamResponse(
            wire,
            lambda: gateway.chat(invocation.request, wire=wire.name),
            invocation.form.encoder(),
            limits=gateway.settings.limits,
            keepalive=KEEPALIVE,
        )
    async with gateway.chat(invocation.request, wire=wire.name) as events:
        return JSONResponse(invocation.form.whole(await collect(events)))


class FramedEncoder:
    """Another encoder's frames as PayloadParts; a failure is an exception frame, which ends the client's iterator."""

    def __init__(self, inner: Encoder[bytes]) -> None:
        self._inner = inner

    def encode(self, event: StreamEvent) -> Iterator[bytes]:
        if isinstance(event, Failed):
            yield model_stream_error(event.error.message, "StreamBroken")
            return
        for frame in self._inner.encode(event):
            yield payload_part(frame)


def check_hash(declared: str | None, body: bytes, *, required: bool) -> None:
    """Compare `x-amz-content-sha256` with the raw body. Raises Forbidden on a mismatch, InvalidRequest on nonsense."""
    if declared is None or declared.startswith(("UNSIGNED-PAYLOAD", "STREAMING-")):
        if required:
            raise Forbidden("The header x-amz-content-sha256 with the payload's SHA-256 is required.")
        return
    if not SHA256.fullmatch(declared):
        raise InvalidRequest("x-amz-content-sha256 must be the 64 hexadecimal digits of the payload's SHA-256.")
    if not hmac.compare_digest(hashlib.sha256(body).hexdigest(), declared.lower()):
        raise Forbidden("The payload's SHA-256 is not the one that x-amz-content-sha256 declares.")
