"""Deny by default, proved on the route tables: a route that nobody thought of is shut."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.trust.conftest import ALICE, Peer
from tests.trust.routes import Route, all_routes
from wires import WIRES, wire_of

OPEN = re.compile(r"/(ping|livez|readyz|healthz|playground(/\{[^}]+\}|/[^/]*)?|v1/(streams|files)/\{[^}]+\})")
"""What the documentation calls open."""
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
