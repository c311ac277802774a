"""Where a connector may lead: trusted URLs, and the addresses that need a word of their own.

A URL must match a trusted expression whole, or lie below the base_url of a provider row. A private, loopback or
link-local address is reached only when it was named: by a base_url, by `private_endpoints`, or by an expression that
spells that very address.
"""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

from gateway.addresses import is_literal, is_public, parse_address
from gateway.config import Settings
from gateway.errors import InvalidRequest

UNTRUSTED = "Connector URL is not matching the trusted connector endpoint regex"
SANE_URL = re.compile(r"https?://[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+")
SOMEWHERE = "host.invalid"
"""Stands for any host: an expression that matches it too names none."""


class Trust:
    """The rules of one configuration."""

    def __init__(self, settings: Settings) -> None:
        self._trusted = [re.compile(pattern) for pattern in settings.connectors.trusted_endpoints]
        self._private = [re.compile(pattern) for pattern in settings.connectors.private_endpoints]
        self._bases = [urlsplit(row.base_url) for row in settings.providers if row.base_url]

    def check(self, url: str) -> None:
        """Raises InvalidRequest unless a connector may lead to `url`."""
        parts = _split(url)
        if not (self._below_a_base(parts) or _matches(self._trusted + self._private, url)):
            raise InvalidRequest(UNTRUSTED, code="untrusted_url")
        if is_literal(parts.hostname or "") and not self.reaches_private(url):
            refuse_private(parts.hostname or "")

    def reaches_private(self, url: str) -> bool:
        """Whether `url` may lead to a private address."""
        parts = _split(url)
        if self._below_a_base(parts) or _matches(self._private, url):
            return True
        host = parts.hostname or ""
        elsewhere = parts._replace(netloc=SOMEWHERE + (f":{parts.port}" if parts.port else "")).geturl()
        return is_literal(host) and any(
            pattern.fullmatch(url) and not pattern.fullmatch(elsewhere) for pattern in self._trusted
        )

    def _below_a_base(self, parts: SplitResult) -> bool:
        path = _plain_path(parts.path)
        return path is not None and any(
            (parts.scheme, parts.hostname, _port(parts)) == (base.scheme, base.hostname, _port(base))
            and (path + "/").startswith(base.path.rstrip("/") + "/")
            for base in self._bases
        )


def refuse_private(host: str) -> None:
    """Raises InvalidRequest when the literal `host` is not everybody's."""
    address = parse_address(host)
    if address is None or not is_public(address):
        raise InvalidRequest(f"Remote inference host name has private ip address: {host}", code="private_address")


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InvalidRequest("The connector's URL is not a URL.", code="untrusted_url") from None
    if not SANE_URL.fullmatch(url) or not parts.hostname or parts.username is not None or port == 0:
        raise InvalidRequest(UNTRUSTED, code="untrusted_url")
    return parts


def _port(parts: SplitResult) -> int:
    return parts.port or (443 if parts.scheme == "https" else 80)


def _plain_path(path: str) -> str | None:
    """None when dots, as they are or encoded, could lead out of the path."""
    return None if re.search(r"(^|/)(\.|%2e){1,2}(/|$)", path, re.IGNORECASE) else path


def _matches(patterns: list[re.Pattern[str]], url: str) -> bool:
    return any(pattern.fullmatch(url) for pattern in patterns)
