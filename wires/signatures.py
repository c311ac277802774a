"""AWS Signature Version 4, checked: who signs as one of our keys must have signed with that key as the secret.

The signature covers the method, the path, the query, the named headers and the body, and is good for a quarter of an
hour. A signature by somebody else's access key, such as CloudFront's, is not ours to check: its request is let in, or
not, by the key that it carries beside.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, urlsplit

from pydantic import SecretStr
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.config import Settings
from gateway.errors import Forbidden
from wires.auth import refuse, signing_key
from wires.base import Wire, headers_of
from wires.middleware import SENT_HEADERS

ALGORITHM = "AWS4-HMAC-SHA256"
CREDENTIAL = re.compile(r"(?P<key>.+)/(?P<scope>(?P<day>[0-9]{8})/[^/]+/[^/]+/aws4_request)")
SKEW = timedelta(minutes=15)
UNSIGNED = "UNSIGNED-PAYLOAD"
MUST_BE_SIGNED = frozenset({"host", "x-amz-date"})


@dataclass(frozen=True, slots=True)
class Signature:
    """What an `Authorization` header says, and the secret of the key that it names."""

    scope: str
    day: str
    names: tuple[str, ...]
    given: str
    secret: SecretStr


class SignatureMiddleware:
    """Holds a signed request back until its body is here and its signature is right; lets every other one pass.

    It stands inside of the bound on bodies.
    """

    def __init__(self, app: ASGIApp, wire_of: Callable[[str], Wire], settings: Settings) -> None:
        self.app = app
        self.wire_of = wire_of
        keys = [*settings.api_keys, *([settings.admin_key] if settings.admin_key else [])]
        self._secrets = {_hash(key.get_secret_value()): key for key in keys}
        self._public_host = urlsplit(settings.public_url).netloc if settings.public_url else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        held: deque[Message] = deque()
        try:
            signature = self._signature(scope)
            if signature is None:
                await self.app(scope, receive, send)
                return
            self._check(signature, scope, await _hold(scope, receive, held))
        except Forbidden as error:
            await refuse(self.wire_of(scope["path"]), error, scope, receive, send)
            return

        async def replay() -> Message:
            return held.popleft() if held else await receive()

        await self.app(scope, replay, send)

    def _signature(self, scope: Scope) -> Signature | None:
        """The signature by one of our keys, None where there is none. Raises Forbidden for one that cannot be read."""
        if scope["type"] not in ("http", "websocket"):
            return None
        scheme, _, said = headers_of(scope).get("authorization", "").partition(" ")
        # Whatever the authentication took for a key is found here as well.
        key = signing_key(said) if scheme.upper() == ALGORITHM else None
        secret = self._secrets.get(_hash(key)) if key is not None else None
        if secret is None:
            return None
        parts = (part.strip().partition("=") for part in said.split(","))
        fields = {name: value for name, _, value in parts}
        credential = CREDENTIAL.fullmatch(fields.get("Credential", ""))
        if credential is None or credential["key"] != key:
            raise _refused("The Authorization header is not 'AWS4-HMAC-SHA256 Credential=..., SignedHeaders=..., ...'")
        names = tuple(fields.get("SignedHeaders", "").split(";"))
        return Signature(credential["scope"], credential["day"], names, fields.get("Signature", ""), secret)

    def _check(self, signature: Signature, scope: Scope, body: str) -> None:
        """Raises Forbidden unless the request is what was signed, lately."""
        headers = _headers(scope)
        _check_time(headers.get("x-amz-date", ""), signature.day)
        declared = headers.get("x-amz-content-sha256", body)
        if declared not in (body, UNSIGNED):
            raise _refused("The body's SHA-256 is not the one that x-amz-content-sha256 declares")
        if not MUST_BE_SIGNED.issubset(signature.names):
            raise _refused("The signature must cover the headers host and x-amz-date")
        hosts = [headers.get("host", ""), *([self._public_host] if self._public_host else [])]
        paths = {_path(scope), quote(_path(scope), safe="/~")}
        right = [
            # As bytes: texts are compared only when they are ASCII.
            hmac.compare_digest(_signed(signature, scope, path, host, declared).encode(), signature.given.encode())
            for host in hosts
            for path in paths
        ]
        if not any(right):
            raise _refused("The signature is not that of this request by this key's secret, which is the key itself")


async def _hold(scope: Scope, receive: Receive, held: deque[Message]) -> str:
    """Read the whole body into `held`, and give its SHA-256. A handshake has none."""
    digest = hashlib.sha256()
    while scope["type"] == "http" and (not held or held[-1].get("more_body", False)):
        held.append(await receive())
        digest.update(held[-1].get("body", b""))
    return digest.hexdigest()


def _headers(scope: Scope) -> Headers:
    """The headers as they were sent."""
    return Headers(raw=list(scope.get(SENT_HEADERS, scope["headers"])))


def _check_time(signed_at: str, day: str) -> None:
    try:
        moment = datetime.strptime(signed_at, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise _refused("x-amz-date must be a time such as 20260131T235959Z") from None
    if not signed_at.startswith(day) or abs(datetime.now(UTC) - moment) > SKEW:
        raise _refused(f"The signature is of {signed_at}, which is more than 15 minutes away; check the clock")


def _path(scope: Scope) -> str:
    """The path as it was sent."""
    raw = scope.get("raw_path")
    return raw.decode("latin-1") if raw is not None else quote(scope["path"])


def _signed(signature: Signature, scope: Scope, path: str, host: str, body: str) -> str:
    """The signature that the request should have. Services but S3 sign a path that was encoded twice."""
    headers = _headers(scope)
    lines = [f"{name}:{host if name == 'host' else _value(headers, name)}" for name in signature.names]
    query = "&".join(f"{name}={value}" for name, _, value in sorted(part.partition("=") for part in _query(scope)))
    request = [scope.get("method", "GET"), path, query, *lines, "", ";".join(signature.names), body]
    digest = hashlib.sha256("\n".join(request).encode("latin-1")).hexdigest()
    text = "\n".join([ALGORITHM, headers["x-amz-date"], signature.scope, digest])
    key = b"AWS4" + signature.secret.get_secret_value().encode()
    for part in signature.scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, text.encode(), "sha256").hex()


def _value(headers: Headers, name: str) -> str:
    return ",".join(" ".join(value.split()) for value in headers.getlist(name))


def _query(scope: Scope) -> list[str]:
    return [part for part in scope.get("query_string", b"").decode("latin-1").split("&") if part]


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "replace")).digest()


def _refused(why: str) -> Forbidden:
    return Forbidden(f"{why}.", code="invalid_signature")
