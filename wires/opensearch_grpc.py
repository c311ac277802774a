"""The ML Commons wire over gRPC: `MLService/PredictModelStream` as clients with opensearch-protobufs call it.

BentoML sees nothing of this port, so authentication, limits, the request id and draining are done here with the same
rules as for HTTP. A call ends in a true status and never with the text of an exception. Health and reflection are open.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health
from grpc_reflection.v1alpha import reflection
from opensearch.protobufs.services.ml_service_pb2 import DESCRIPTOR
from opensearch.protobufs.services.ml_service_pb2_grpc import MLServiceServicer, add_MLServiceServicer_to_server

from gateway.callers import current_caller
from gateway.errors import GatewayError, InternalError, InvalidRequest, RateLimited, Unsupported
from gateway.events import Failed, Finished
from gateway.patience import Waited, WaitLimit
from gateway.telemetry import RequestScope, count_request, current_request, log_refusal
from gateway.tracing import current_trace, read_trace
from wires.auth import Policy
from wires.middleware import SANE_ID
from wires.opensearch.encoder import ContentEncoder
from wires.opensearch.messages import MessageWriter, Shortcut, sendable
from wires.opensearch.streams import UNFIT_INTERFACE, StreamPool, demand_remote_inference, find_target, streamed_request
from wires.ports import grpc_address, port_taken

log = logging.getLogger("polywire")

WIRE_NAME = "opensearch-grpc"
SERVICE = DESCRIPTOR.services_by_name["MLService"].full_name
LONGEST_MESSAGE = 10 * 1024 * 1024
LONGEST_DETAILS = 700
"""Characters. Details travel percent-encoded in a header, and clients take 8 KiB of headers."""
CALLS_PER_CONNECTION = 100
AFTER_DRAIN_SECONDS = 2.0
"""More than calls need for their status once their streams are ended; `abort` comes before that."""
OPTIONS = (
    ("grpc.so_reuseport", 1),
    ("grpc.max_receive_message_length", LONGEST_MESSAGE),
    ("grpc.max_send_message_length", LONGEST_MESSAGE),
    ("grpc.max_concurrent_streams", CALLS_PER_CONNECTION),
    # A dead peer is noticed within a minute, and clients may ask as often as every ten seconds.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
)
STATUS = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    409: grpc.StatusCode.ABORTED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    499: grpc.StatusCode.CANCELLED,
    501: grpc.StatusCode.UNIMPLEMENTED,
    503: grpc.StatusCode.UNAVAILABLE,
}
"""ML Commons' own mapping; every other status is INTERNAL."""
STATUS_BY_CODE = {
    "remote_inference_disabled": grpc.StatusCode.FAILED_PRECONDITION,
    "illegal_state_exception": grpc.StatusCode.INVALID_ARGUMENT,
    UNFIT_INTERFACE: grpc.StatusCode.INTERNAL,
}
TCP_PEER = re.compile(r"ipv[46]:\[?(?P<host>[^\]]+?)\]?:\d+")


class GrpcServer:
    """The server of one worker; several workers share the port."""

    def __init__(self, pool: StreamPool) -> None:
        self._pool = pool
        self._settings = pool.gateway.settings
        self._server: grpc.aio.Server | None = None
        self._stopping: asyncio.Future[None] | None = None
        self._aborting: asyncio.Future[None] | None = None
        self._health = health.HealthServicer()

    async def start(self) -> None:
        """Listen on `grpc_host:grpc_port`. Raises OSError when the port cannot be had."""
        server = grpc.aio.server(options=OPTIONS)
        add_MLServiceServicer_to_server(MachineLearning(self._pool), server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = (SERVICE, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
        address = grpc_address(self._settings)
        try:
            server.add_insecure_port(address)
        except RuntimeError:
            raise OSError(port_taken(self._settings)) from None
        await self._health.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)
        await self._health.set("", health_pb2.HealthCheckResponse.SERVING)
        await server.start()
        self._server = server
        log.info("gRPC listens on %s", address)

    def drain(self) -> None:
        """Begin to stop: refuse new calls, and let those at work end."""
        if self._server is not None and self._stopping is None:
            self._stopping = asyncio.ensure_future(self._stop(self._server))

    def abort(self) -> None:
        """Cut off the calls that are left."""
        if self._server is not None and self._aborting is None:
            self._aborting = asyncio.ensure_future(self._server.stop(None))

    async def stop(self) -> None:
        """Wait until every call has ended; one that does not is cut off."""
        self.drain()
        self.abort()
        await asyncio.gather(*filter(None, (self._stopping, self._aborting)))

    async def _stop(self, server: grpc.aio.Server) -> None:
        await self._health.enter_graceful_shutdown()
        await server.stop(self._settings.limits.drain_seconds + AFTER_DRAIN_SECONDS)


class MachineLearning(MLServiceServicer):  # type: ignore[misc]  # the generated class has no types
    """`PredictModelStream`; agents are not run here."""

    def __init__(self, pool: StreamPool) -> None:
        self._pool = pool
        self._policy = Policy(pool.gateway.settings)
        self._stall = pool.gateway.settings.limits.send_stall_seconds

    async def PredictModelStream(self, request: Any, context: grpc.aio.ServicerContext) -> None:  # noqa: N802 - gRPC's name
        """One message per delta, a last one with `is_last`, then OK."""
        await self._answer(context, self._predict, request)

    async def ExecuteAgentStream(self, request: Any, context: grpc.aio.ServicerContext) -> None:  # noqa: N802 - gRPC's name
        """Agents belong to a cluster."""
        await self._answer(context, _refuse_agents, request)

    async def _answer(
        self, context: grpc.aio.ServicerContext, method: Callable[[Any, _Call], Awaitable[None]], request: Any
    ) -> None:
        """What every method does: admit the caller, do the work, and end in a true status."""
        call = _Call(context, self._stall)
        try:
            await call.begin()
            self._admit(call)
            with self._pool.gateway.stopping.work():
                await method(request, call)
            count_request(WIRE_NAME, 200)
        except GatewayError as error:
            await call.fail(error)
        except Waited:
            await call.fail(RateLimited("The client accepted nothing for too long."))
        except (asyncio.CancelledError, grpc.aio.AbortError):
            raise
        except Exception:
            log.exception("call %s on the %s wire failed", call.scope.request_id, WIRE_NAME)
            await call.fail(InternalError("Polywire failed; the log has the cause."))
        finally:
            call.end()

    def _admit(self, call: _Call) -> None:
        self._pool.gateway.stopping.demand()
        current_caller.set(self._policy.admit(call.as_scope()))

    async def _predict(self, request: Any, call: _Call) -> None:
        demand_remote_inference(self._pool.gateway)
        parameters = _parameters(request)
        target = await find_target(self._pool.gateway, request.model_id)
        chat = streamed_request(target, parameters)
        encoder = ContentEncoder()
        async with self._pool.chat(chat, wire=WIRE_NAME) as events:
            events.hand_to(Shortcut(encoder, call.writer))
            async for event in events:
                await call.send(encoder.contents(event))
                if isinstance(event, Finished):
                    await call.finish(("",))
                elif isinstance(event, Failed):
                    await call.finish(())
                    raise event.error


async def _refuse_agents(request: Any, call: _Call) -> None:
    raise Unsupported("Agents are not run here; call PredictModelStream with a model instead.", status=501)


class _Call:
    """One call: its id, its metadata, and a bound on a client that reads nothing."""

    def __init__(self, context: grpc.aio.ServicerContext, stall: float) -> None:
        self._context = context
        self._stall = stall
        self._metadata: dict[str, str] = {
            key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)
        }
        asked = self._metadata.get("x-request-id", "")
        self.scope = RequestScope(asked if SANE_ID.fullmatch(asked) else uuid4().hex, WIRE_NAME)
        self._wait = WaitLimit()
        self.writer = MessageWriter(context.write)

    async def begin(self) -> None:
        """Say the request id at once, before the model has said anything."""
        current_request.set(self.scope)
        current_trace.set(read_trace(self._metadata.items()))
        id = ("x-request-id", self.scope.request_id)
        await self._context.send_initial_metadata((id,))
        # Clients whose call failed often see the trailing metadata alone.
        self._context.set_trailing_metadata((id,))

    async def send(self, contents: Iterable[str]) -> None:
        """One message each. Raises Waited when the client accepts nothing."""
        self.writer.put(contents)
        while not self.writer.ready():
            await self._progress()

    async def finish(self, contents: Iterable[str]) -> None:
        """Those as last messages, and return when all are sent. Raises Waited when the client accepts nothing."""
        self.writer.put(contents, last=True)
        while not self.writer.idle():
            await self._progress()

    async def _progress(self) -> None:
        with self._wait.bounded(self._stall):
            await self.writer.progress()

    async def fail(self, error: GatewayError) -> None:
        """End the call with the status of `error`."""
        self.scope.code = error.code
        count_request(WIRE_NAME, error.status)
        log_refusal(self.scope, error.status)
        code = STATUS_BY_CODE.get(error.code) or STATUS.get(error.status, grpc.StatusCode.INTERNAL)
        trailing = [("x-request-id", self.scope.request_id)]
        if error.retry_after is not None:
            trailing.append(("retry-after", str(max(1, round(error.retry_after)))))
        await self._context.abort(code, sendable(error.message)[:LONGEST_DETAILS], tuple(trailing))

    def end(self) -> None:
        """Drop the timer, and what was not written."""
        self._wait.stop()
        self.writer.close()

    def as_scope(self) -> dict[str, Any]:
        """The call as the authentication of the HTTP wires sees a request."""
        found = TCP_PEER.fullmatch(unquote(self._context.peer()))
        headers = [(key.encode("latin-1"), value.encode("utf-8")) for key, value in self._metadata.items()]
        client = (found["host"], 0) if found else None
        return {"type": "http", "method": "POST", "path": f"/{SERVICE}", "headers": headers, "client": client}


def _parameters(request: Any) -> Mapping[str, Any]:
    """The parameters under their REST names. Raises InvalidRequest in ML Commons' words and order."""
    if not request.model_id:
        raise InvalidRequest("model_id is required")
    if not request.HasField("ml_predict_model_stream_request_body"):
        raise InvalidRequest("MlPredictModelStreamRequest must have request body")
    body = request.ml_predict_model_stream_request_body
    if not body.HasField("parameters"):
        raise InvalidRequest("Request body must have parameters")
    given = body.parameters
    parameters: dict[str, Any] = {name: getattr(given, name) for name in ("inputs", "question") if given.HasField(name)}
    if given.messages:
        parameters["messages"] = [
            {name: getattr(item, name) for name in ("role", "content") if item.HasField(name)}
            for item in given.messages
        ]
    if given.HasField("x_llm_interface"):
        parameters["_llm_interface"] = given.x_llm_interface
    return parameters
