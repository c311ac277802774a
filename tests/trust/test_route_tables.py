"""Deny by default, proved on the route tables: a route that nobody thought of is shut."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import grpc
import pytest
from opensearch.protobufs.services.ml_service_pb2 import DESCRIPTOR

from adapters import build
from gateway.catalog import Gateway
from gateway.config import Settings
from tests.running import Service
from tests.trust.conftest import ALICE, Peer
from tests.trust.routes import Route, all_routes
from wires import WIRES, wire_of
from wires.opensearch import StreamPool
from wires.opensearch_grpc import SERVICE, GrpcServer

OPEN = re.compile(r"/(ping|livez|readyz|healthz|playground(/\{[^}]+\}|/[^/]*)?|v1/(streams|files)/\{[^}]+\})")
"""What the documentation calls open."""
OPEN_METHODS = re.compile(r"/grpc\.(health\.v1\.Health|reflection\.v1alpha\.ServerReflection)/[A-Za-z]+")
FAR = ("203.0.113.9", "10.0.0.7", "::ffff:192.0.2.1", "fe80::1", "unix", None)
"""Peers that are not on this machine, and one that cannot be told."""


@pytest.fixture(scope="session")
def routes(tmp_path_factory: pytest.TempPathFactory) -> list[Route]:
    return all_routes(tmp_path_factory.mktemp("routes"))


def test_the_tables_hold_every_wire(routes: list[Route]) -> None:
    paths = {route.path for route in routes}
    for expected in (
        "/generate",
        "/metrics",
        "/ws",
        "/v1/chat/completions",
        "/v1/predictions",
        "/invocations",
        "/lambda",
    ):
        assert expected in paths
    assert {wire_of(route.address).name for route in routes} == {wire.name for wire in WIRES}
    assert len(routes) > 60


@pytest.mark.parametrize("settings", [{}, {"api_keys": ALICE}, {"api_keys": ALICE, "admin_key": "boss"}])
async def test_every_route_but_the_open_ones_is_shut(routes: list[Route], settings: dict[str, str]) -> None:
    addresses = FAR if not settings else (*FAR, "127.0.0.1", "::1")
    for address in addresses:
        peer = Peer(address, **settings)
        for route in routes:
            before = peer.reached
            status = await peer.ask(route.method, route.address, kind="http" if route.kind == "mount" else route.kind)
            if OPEN.fullmatch(route.path):
                assert (status, peer.reached) == (200, before + 1), route
            else:
                shut = 403 if route.address.startswith("/endpoints/") else 401
                assert (status, peer.reached) == (shut, before), (address, route)


async def methods_of_grpc(monkeypatch: pytest.MonkeyPatch, folder: Path) -> dict[str, Any]:
    """Every method that the gRPC server registers, by its path."""
    found: dict[str, Any] = {}
    kind = type(grpc.aio.server())
    add = kind.add_generic_rpc_handlers

    def noting(self: grpc.aio.Server, handlers: Any) -> None:
        for handler in handlers:
            found.update(handler._method_handlers)
        add(self, handlers)

    monkeypatch.setattr(kind, "add_generic_rpc_handlers", noting)
    settings = Settings(grpc_port=0, grpc_host="127.0.0.1", store=f"sqlite:///{folder / 'methods.db'}")
    async with aclosing(Gateway(settings, build)) as gateway:
        server = GrpcServer(StreamPool(gateway))
        await server.start()
        await server.stop()
    return found


async def test_every_grpc_method_but_health_and_reflection_is_shut(
    guarded: Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    methods = await methods_of_grpc(monkeypatch, tmp_path)
    assert {path for path in methods if not OPEN_METHODS.fullmatch(path)} == {
        f"/{SERVICE}/{method.name}" for method in DESCRIPTOR.services_by_name["MLService"].methods
    }
    async with grpc.aio.insecure_channel(f"127.0.0.1:{guarded.grpc_port}") as channel:
        for path, method in methods.items():
            for metadata in ((), (("authorization", "Bearer wrong"),), (("authorization", f"Bearer {ALICE}"),)):
                code = await _code(channel, path, method, metadata)
                shut = not OPEN_METHODS.fullmatch(path) and ALICE not in str(metadata)
                assert (code is grpc.StatusCode.UNAUTHENTICATED) is shut, (path, code)


async def _code(channel: grpc.aio.Channel, path: str, method: Any, metadata: Any) -> grpc.StatusCode:
    """How a call with an empty message ends, or OK once there is an answer."""
    kinds = ("stream" if streaming else "unary" for streaming in (method.request_streaming, method.response_streaming))
    request = iter([b""]) if method.request_streaming else b""
    call = getattr(channel, "_".join(kinds))(path)(request, metadata=metadata, timeout=5)
    try:
        await (call.read() if method.response_streaming else call)
    except grpc.aio.AioRpcError as error:
        return error.code()
    code = await call.code() if call.done() else grpc.StatusCode.OK
    call.cancel()
    return code


async def test_tricks_with_paths_and_methods_open_nothing() -> None:
    peer = Peer("203.0.113.9", api_keys=ALICE)
    for path in (
        "/ping/../generate", "/PING", "/livez/", "//livez", "/livez/x", "/v1/streams/", "/v1/streams/a/b",
        "/playground/../metrics", "/v1/files/a/../../predictions", "", "/", "/x", "/v1", "/metrics/", "/docs.json",
    ):  # fmt: skip
        for method in ("GET", "POST", "HEAD", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get", "BREW"):
            status = await peer.ask(method, path)
            assert (status, peer.reached) == (401, 0), (method, path)


async def test_each_wire_says_so_in_its_own_shape() -> None:
    peer = Peer("203.0.113.9", api_keys=ALICE)
    shapes: dict[str, Callable[[Any], bool]] = {
        "/generate": lambda body: body["code"] == "missing_api_key",
        "/ws": lambda body: (body["type"], body["status"]) == ("error", 401),
        "/v1/chat/completions": lambda body: body["error"]["code"] == "invalid_api_key",
        "/v1/predictions": lambda body: (body["title"], body["status"]) == ("Unauthenticated", 401),
        "/invocations": lambda body: isinstance(body["error"], str),
        "/endpoints/x/invocations": lambda body: "API key" in body["Message"],
        "/lambda": lambda body: body["type"] == "AccessDeniedException",
        "/_plugins/_ml/models/_search": lambda body: body["error"]["type"] == "security_exception",
    }
    for path, fits in shapes.items():
        await peer.ask("POST", path)
        assert fits(json.loads(peer.body)), peer.body
        await peer.ask("POST", path, {"authorization": "Bearer wrong"})
        assert ALICE.encode() not in peer.body
        assert b"wrong" not in peer.body
