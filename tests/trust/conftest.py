"""A running service with two keys and an admin key, and the middlewares alone for peers from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.types import Message, Scope

from gateway.config import Settings
from gateway.stopping import Stopping
from tests.conftest import scripted_config
from tests.running import Service, running
from wires import wire_of
from wires.auth import AuthMiddleware
from wires.middleware import RequestMiddleware

ALICE, BOB, ADMIN = "sk-canary-alice-5e1f", "sk-canary-bob-77aa", "sk-canary-admin-9c3d"


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The service behind keys."""
    environment = {"POLYWIRE_API_KEYS": f"{ALICE},{BOB}", "POLYWIRE_ADMIN_KEY": ADMIN}
    folder = tmp_path_factory.mktemp("guarded")
    with running(folder, scripted_config(), environment=environment, grpc=True) as service:
        service.headers["authorization"] = f"Bearer {ALICE}"
        yield service


class Peer:
    """A request of a client at any address, as far as the authentication lets it."""

    def __init__(self, address: str | None, **settings: Any) -> None:
        self.address = address
        self.reached = 0
        self.sent: list[Message] = []
        self.app = RequestMiddleware(AuthMiddleware(self._inside, wire_of, Settings(**settings)), wire_of, Stopping())

    async def _inside(self, scope: Scope, receive: Any, send: Any) -> None:
        self.reached += 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def ask(self, method: str, path: str, headers: dict[str, str] | None = None, *, kind: str = "http") -> int:
        """The status of the answer."""
        given = {"host": "127.0.0.1:3000", **(headers or {})}
        raw = [(name.lower().encode(), value.encode()) for name, value in given.items()]
        client = None if self.address is None else (self.address, 50_000)
        scope = {"type": kind, "method": method, "path": path, "headers": raw, "client": client, "query_string": b""}
        self.sent.clear()
        await self.app(scope, self._nothing, self._take)
        return int(self.sent[0]["status"])

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)

    async def _nothing(self) -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def _take(self, message: Message) -> None:
        self.sent.append(message)
