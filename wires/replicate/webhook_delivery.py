"""One webhook on its way: signed in the Standard Webhooks form and posted to an address that was checked.

The connection goes to that very address, and redirects are not followed: neither can lead it anywhere else.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import re
import ssl
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from gateway.addresses import resolve_public
from gateway.config import WebhookSettings
from wires.replicate.errors import invalid

SECONDS = 10.0
PLAIN = re.compile(r"[\x21-\x7e]+")
STATUS_LINE = re.compile(rb"HTTP/1\.[01] (\d{3})")


@dataclass(frozen=True, slots=True)
class Target:
    """A webhook's URL in its parts."""

    secure: bool
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """The `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"


def parse_target(url: str, settings: WebhookSettings) -> Target:
    """The parts of a trusted URL. Raises InvalidRequest; whether its address is public is seen when it is resolved."""
    if not any(re.fullmatch(pattern, url) for pattern in settings.trusted_endpoints):
        raise invalid("webhook: this service sends to no such URL; add it to webhooks.trusted_endpoints.", "webhook")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise invalid("webhook: this is no URL.", "webhook") from None
    secure = parts.scheme == "https"
    if not PLAIN.fullmatch(url) or "\\" in url or not parts.hostname or parts.username is not None:
        raise invalid("webhook: write a plain URL without a user name.", "webhook")
    if not secure and not (parts.scheme == "http" and settings.allow_loopback):
        raise invalid("webhook: only https URLs are sent to.", "webhook")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(secure, parts.hostname, port or (443 if secure else 80), path)


def signature(secret: str, id: str, timestamp: str, body: bytes) -> str:
    """The `webhook-signature` header of a message."""
    key = base64.b64decode(secret.partition("_")[2])
    signed = f"{id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


async def post(target: Target, settings: WebhookSettings, *, secret: str, id: str, body: bytes) -> int:
    """The status that the target answers. Raises Forbidden for a private address, OSError and TimeoutError."""
    timestamp = str(int(time.time()))
    head = [
        f"POST {target.path} HTTP/1.1",
        f"host: {target.authority}",
        "content-type: application/json",
        f"content-length: {len(body)}",
        f"webhook-id: {id}",
        f"webhook-timestamp: {timestamp}",
        f"webhook-signature: {signature(secret, id, timestamp, body)}",
        "user-agent: polywire",
        "connection: close",
    ]
    async with asyncio.timeout(SECONDS):
        address = await resolve_public(target.host, target.port, allow_loopback=settings.allow_loopback)
        return await _exchange(target, address, "\r\n".join([*head, "", ""]).encode() + body)


async def _exchange(target: Target, address: str, message: bytes) -> int:
    context = ssl.create_default_context() if target.secure else None
    name = target.host if target.secure else None
    reader, writer = await asyncio.open_connection(address, target.port, ssl=context, server_hostname=name)
    try:
        writer.write(message)
        await writer.drain()
        found = STATUS_LINE.match(await reader.readline())
    except ValueError as error:
        raise OSError("the answer's first line is too long") from error
    finally:
        writer.transport.abort()
    if found is None:
        raise OSError("the answer is not HTTP")
    return int(found[1])
