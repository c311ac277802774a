"""Without keys this machine is trusted, and nobody can borrow that trust."""

from __future__ import annotations

import pytest

from tests.trust.conftest import ALICE, Peer


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
@pytest.mark.parametrize("host", ["127.0.0.1:3000", "localhost:3000", "localhost", "[::1]:3000", "192.168.1.4"])
async def test_a_client_on_this_machine_is_served(address: str, host: str) -> None:
    assert await Peer(address).ask("POST", "/generate", {"host": host}) == 200


@pytest.mark.parametrize(
    "header", ["x-forwarded-for", "X-Forwarded-For", "forwarded", "x-real-ip", "x-forwarded-host", "via"]
)
@pytest.mark.parametrize("value", ["127.0.0.1", "for=127.0.0.1", "::1", "", "203.0.113.9, 127.0.0.1"])
async def test_nobody_is_here_by_a_forwarded_header(header: str, value: str) -> None:
    for address in ("203.0.113.9", "127.0.0.1"):
        assert await Peer(address).ask("POST", "/generate", {header: value}) == 401


@pytest.mark.parametrize(
    "host", ["evil.example:3000", "localhost.evil.example", "127.0.0.1.nip.io", "localhost@evil", "", "[", "[x]:3000"]
)
async def test_a_name_that_was_made_to_lead_here_is_not_this_machine(host: str) -> None:
    """DNS rebinding: the page's own site resolves to loopback, and Origin and Host agree."""
    peer = Peer("127.0.0.1")
    assert await peer.ask("POST", "/generate", {"host": host, "origin": f"http://{host}"}) in (401, 403)
    assert await peer.ask("GET", "/ws", {"host": host, "origin": f"http://{host}"}, kind="websocket") in (401, 403)
    assert peer.reached == 0


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "http://127.0.0.1:3000.evil.example", "http://localhost", "http://[", "//[x]"],
)
async def test_a_foreign_page_cannot_post_to_this_machine(origin: str) -> None:
    """A page may send a form anywhere without being asked; it carries its Origin."""
    peer = Peer("127.0.0.1")
    for path in ("/generate", "/v1/predictions", "/_plugins/_ml/connectors/_create"):
        headers = {"origin": origin, "content-type": "application/x-www-form-urlencoded"}
        assert await peer.ask("POST", path, headers) == 403
    assert peer.reached == 0
    assert await peer.ask("POST", "/generate", {"origin": "http://127.0.0.1:3000"}) == 200
    listed = Peer("127.0.0.1", origins=("https://page.example",))
    assert await listed.ask("POST", "/generate", {"origin": "https://page.example"}) == 200


async def test_a_key_opens_from_anywhere_and_through_a_proxy() -> None:
    peer = Peer("203.0.113.9", api_keys=ALICE)
    headers = {"authorization": f"Bearer {ALICE}", "x-forwarded-for": "198.51.100.1", "host": "polywire.example"}
    assert await peer.ask("POST", "/generate", headers) == 200


@pytest.mark.parametrize(
    "value",
    [
        "Bearer", "Bearer ", "Bearer  ", f"Bearer {ALICE[:-1]}", f"Bearer {ALICE}x", f"Bearer {ALICE.upper()}",
        f"bearer{ALICE}", ALICE, "Basic !!!", "Basic dXNlcg==", "Basic ", "Token", "AWS4-HMAC-SHA256 Credential=/x",
        f"Digest {ALICE}", f"Bearer {ALICE},{ALICE}", "Bearer \udcff", "Bearer " + "a" * 50_000,
    ],
)  # fmt: skip
async def test_what_is_not_exactly_a_key_opens_nothing(value: str) -> None:
    peer = Peer("127.0.0.1", api_keys=ALICE)
    encoded = value.encode("utf-8", "replace").decode()
    assert await peer.ask("POST", "/generate", {"authorization": encoded}) == 401
    assert await peer.ask("POST", f"/generate?api_key={ALICE}") == 401
    assert peer.reached == 0
