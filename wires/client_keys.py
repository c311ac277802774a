"""Keys that a server gives to its browsers: short-lived, good for `/v1/realtime` only, checked without being stored.

A key is its content (an end and a session to begin with) and a signature. The signing secret comes from the configured
API keys, so every worker and replica accepts it and it is void once those keys are changed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gateway.config import Settings
from gateway.errors import InvalidRequest

PREFIX = "ek_"
"""What OpenAI's browser clients ask for."""
LONGEST = 4_000
"""Characters. It travels in a header, and many servers take no line above 8 KiB."""
LARGEST_SESSION = 64 * 1024


@dataclass(frozen=True, slots=True)
class ClientKey:
    """What a key says. `expires_at` is in Unix seconds, `session` the configuration that a session begins with."""

    expires_at: int
    session: Mapping[str, Any]


class ClientKeys:
    """Issues and reads keys."""

    def __init__(self, settings: Settings) -> None:
        keys = [*settings.api_keys, *([settings.admin_key] if settings.admin_key else [])]
        self._secret = _secret("\n".join(sorted(key.get_secret_value() for key in keys)))

    def issue(self, key: ClientKey) -> str:
        """Raises InvalidRequest when the session is too large to be carried."""
        content = json.dumps([key.expires_at, key.session], separators=(",", ":")).encode()
        packed = _text(zlib.compress(content, 9))
        issued = f"{PREFIX}{packed}.{self._signature(packed)}"
        if len(issued) > LONGEST:
            raise InvalidRequest(
                "The session is too large for a client secret; send its instructions and tools by session.update.",
                param="session",
            )
        return issued

    def read(self, value: str, now: float) -> ClientKey | None:
        """What `value` says; None when it is no key of ours or its time is over."""
        packed, _, signature = value.removeprefix(PREFIX).partition(".")
        if not value.startswith(PREFIX) or not hmac.compare_digest(
            signature.encode("utf-8", "replace"), self._signature(packed).encode()
        ):
            return None
        try:
            content = zlib.decompressobj().decompress(base64.urlsafe_b64decode(packed + "=="), LARGEST_SESSION)
            expires_at, session = json.loads(content)
        except (binascii.Error, zlib.error, ValueError):
            return None
        return ClientKey(expires_at, session) if now < expires_at else None

    def _signature(self, packed: str) -> str:
        return _text(hmac.digest(self._secret, packed.encode("utf-8", "replace"), "sha256"))


@lru_cache(maxsize=4)
def _secret(keys: str) -> bytes:
    """Slow on purpose: whoever holds an issued key must not find a weak API key by trying."""
    return hashlib.scrypt(keys.encode(), salt=b"polywire client keys", n=2**14, r=8, p=1, dklen=32)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
