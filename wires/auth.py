"""Who may come in: one policy for every HTTP and WebSocket route, deny by default, keys in each client's own way.

Keys are held hashed and compared in constant time. Without configured keys only clients of this machine are served: a
loopback peer that no proxy speaks for, that names the service as this machine, and that no foreign web page sent.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import re
import time
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from urllib.parse import SplitResult, urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.callers import ADMIN, Caller, current_caller
from gateway.config import Settings
from gateway.errors import Forbidden, GatewayError, Unauthorized
from wires.base import Wire, headers_of
from wires.client_keys import ClientKeys

OPEN_PATHS = re.compile(r"/(ping|livez|readyz|healthz|playground(/[a-z.]*)?|v1/(streams|files)/[^/]+)")
"""Health, the page (which holds nothing) and Replicate's stream and file URLs, which are unguessable capabilities."""
FORWARDED = frozenset({"forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via"})
"""Headers by which a proxy says that it speaks for somebody else."""
PLAIN_HOST = re.compile(r"[A-Za-z0-9-]+(\.localhost)?(:[0-9]+)?")
"""A name without a domain, which nobody can register."""
CLIENT_KEY_PATH = "/v1/realtime"
"""The one path that a client secret opens."""
KEY_PROTOCOL = "openai-insecure-api-key."
KEY_ID = re.compile(r"([^/,\s]+)/")


class AuthMiddleware:
    """Lets a request pass, or answers it in the shape of the wire whose path it asked for."""

    def __init__(self, app: ASGIApp, wire_of: Callable[[str], Wire], settings: Settings) -> None:
        self.app = app
        self.wire_of = wire_of
        self.policy = Policy(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        try:
            caller = self.policy.admit(scope)
        except GatewayError as error:
            await self._refuse(error, scope, receive, send)
            return
        scope.setdefault("state", {})["owner"] = caller.key
        token = current_caller.set(caller)
        try:
            await self.app(scope, receive, send)
        finally:
            current_caller.reset(token)

    async def _refuse(self, error: GatewayError, scope: Scope, receive: Receive, send: Send) -> None:
        await refuse(self.wire_of(scope["path"]), error, scope, receive, send)


async def refuse(wire: Wire, error: GatewayError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request, or a WebSocket handshake, with `error` in the wire's shape."""
    response = wire.refuse(error)
    if scope["type"] == "http":
        await response(scope, receive, send)
        return
    await receive()
    head = {"status": response.status_code, "headers": response.raw_headers}
    await send({"type": "websocket.http.response.start", **head})
    await send({"type": "websocket.http.response.body", "body": response.body})


class Policy:
    """The rules, without I/O: `admit` raises Unauthorized or Forbidden."""

    def __init__(self, settings: Settings) -> None:
        self._hashes = [_hash(key.get_secret_value()) for key in settings.api_keys]
        self._admin = None if settings.admin_key is None else _hash(settings.admin_key.get_secret_value())
        if self._admin is not None:
            self._hashes.append(self._admin)
        self._open = settings.auth == "none"
        self._has_keys = bool(settings.api_keys)
        self._origins = settings.origins
        self._client_keys = ClientKeys(settings)

    def admit(self, scope: Scope) -> Caller:
        """Who asks. Raises Unauthorized or Forbidden unless the request may go on."""
        headers = headers_of(scope)
        if scope["type"] == "websocket":
            self._check_origin(headers)
        keys = list(credentials(headers))
        local = _is_local(scope, headers)
        known = [offered for key in keys if self._known(offered := _hash(key))]
        caller = self._caller(known, loopback=local)
        if self._open or OPEN_PATHS.fullmatch(scope["path"]) or _preflight(scope, headers):
            return caller
        if not self._has_keys:
            if not local and not caller.admin:
                raise Unauthorized(
                    "This service has no API keys configured and so serves only clients on its own machine; "
                    "set POLYWIRE_API_KEYS (or POLYWIRE_AUTH=none to open it on purpose).",
                    code="no_keys_configured",
                )
            self._check_origin(headers)
            return caller
        if not keys:
            raise Unauthorized("No API key was sent; send it as 'Authorization: Bearer <key>'.", code="missing_api_key")
        if not known and not any(self._is_client_key(key, scope) for key in keys):
            raise Unauthorized(
                "The API key is not valid; valid are those in POLYWIRE_API_KEYS, where this service was started.",
                code="invalid_api_key",
            )
        return caller

    def _caller(self, known: list[bytes], *, loopback: bool) -> Caller:
        """Without any key configured, whoever is on this machine runs it. An admin key, where there is one, creates."""
        if self._admin is not None and any(hmac.compare_digest(key, self._admin) for key in known):
            return Caller(ADMIN, admin=True, creates=True)
        creates = self._admin is None and loopback
        if known:
            return Caller(known[0].hex()[:32], creates=creates)
        return Caller(ADMIN, admin=True, creates=True) if creates and not self._has_keys else Caller(creates=creates)

    def _known(self, offered: bytes) -> bool:
        # Every hash is compared, so that the time taken does not tell which one was near.
        return sum([hmac.compare_digest(offered, known) for known in self._hashes]) > 0

    def _is_client_key(self, key: str, scope: Scope) -> bool:
        return scope["path"] == CLIENT_KEY_PATH and self._client_keys.read(key, time.time()) is not None

    def _check_origin(self, headers: Mapping[str, str]) -> None:
        """Only browsers send an Origin. Another site's page may not open our sockets, nor use this machine's trust."""
        origin = headers.get("origin")
        if origin is None or origin in self._origins or "*" in self._origins:
            return
        if _place(origin).netloc != headers.get("host"):
            raise Forbidden("Pages of this origin may not come here; add it to 'origins' in polywire.yaml.")


def credentials(headers: Mapping[str, str]) -> Iterator[str]:
    """Every key that the request carries, whatever its client's convention."""
    authorization = headers.get("authorization", "")
    scheme, _, value = authorization.partition(" ")
    match scheme.lower():
        case "bearer" | "token":
            yield value.strip()
        case "basic":
            yield from _password(value)
        case "aws4-hmac-sha256":
            if (key := signing_key(value)) is not None:
                yield key
    for name in ("api-key", "x-api-key"):
        if name in headers:
            yield headers[name]
    for protocol in headers.get("sec-websocket-protocol", "").split(","):
        if protocol.strip().startswith(KEY_PROTOCOL):
            yield protocol.strip().removeprefix(KEY_PROTOCOL)


def signing_key(fields: str) -> str | None:
    """The key id in the `fields` of a SigV4 `Authorization` header."""
    # Looked for once and not from every place: anybody may send a long header.
    found = KEY_ID.match(fields.partition("Credential=")[2])
    return found[1] if found else None


def _password(value: str) -> Iterator[str]:
    try:
        decoded = base64.b64decode(value.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return
    yield decoded.partition(":")[2]


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "replace")).digest()


def _preflight(scope: Scope, headers: Mapping[str, str]) -> bool:
    return scope.get("method") == "OPTIONS" and "access-control-request-method" in headers


def _is_local(scope: Scope, headers: Mapping[str, str]) -> bool:
    """Whether the client is on this machine. Who was forwarded is not, whatever the header says, and neither is a page
    whose site's name was made to lead here: its `Host` is that name, which has a dot."""
    if not FORWARDED.isdisjoint(headers):
        return False
    client = scope.get("client")
    host = headers.get("host", "localhost")
    return _is_plain(host) and client is not None and _is_loopback(client[0])


@lru_cache(maxsize=256)
def _is_plain(host: str) -> bool:
    """Whether a `Host` is an address or a name without a domain."""
    return PLAIN_HOST.fullmatch(host) is not None or _is_address(_place(f"//{host}").hostname or "")


def _place(url: str) -> SplitResult:
    """The parts of a URL; what is none has none, since `urlsplit` raises for brackets that hold no address."""
    try:
        return urlsplit(url)
    except ValueError:
        return SplitResult("", "", "", "", "")


@lru_cache(maxsize=256)
def _is_loopback(host: str) -> bool:
    if not _is_address(host):
        return False
    address = ipaddress.ip_address(host)
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
