"""Credentials at rest: AES-256-GCM, each bound to the record it belongs to.

The key is POLYWIRE_STORE_KEY (any text of 16 characters or more) or, for a SQLite store, a file beside it with the
suffix `.key`, made with mode 0600 on first use. Whoever loses the key loses the credentials and nothing else.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gateway.config import Settings
from gateway.errors import InternalError

NONCE = 12
SHORTEST_KEY = 16
SQLITE = "sqlite:///"


class Vault:
    """Seals and opens credentials. The key is read when it is first needed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._cipher: AESGCM | None = None

    async def seal(self, secret: bytes, record: str) -> bytes:
        """`secret` encrypted so that only `open` with the same `record` gives it back."""
        nonce = secrets.token_bytes(NONCE)
        return nonce + (await self._ready()).encrypt(nonce, secret, record.encode())

    async def open(self, sealed: bytes, record: str) -> bytes:
        """What was sealed. Raises InternalError when the key is another one."""
        try:
            return (await self._ready()).decrypt(sealed[:NONCE], sealed[NONCE:], record.encode())
        except InvalidTag:
            raise InternalError(
                "The stored credential cannot be opened: the store's key has changed; register the connector again."
            ) from None

    async def _ready(self) -> AESGCM:
        if self._cipher is None:
            self._cipher = AESGCM(hashlib.sha256(await asyncio.to_thread(self._key)).digest())
        return self._cipher

    def _key(self) -> bytes:
        given = self._settings.store_key
        if given is not None:
            key = given.get_secret_value().encode()
            if len(key) < SHORTEST_KEY:
                raise InternalError(f"POLYWIRE_STORE_KEY is shorter than {SHORTEST_KEY} characters.")
            return key
        if not self._settings.store.startswith(SQLITE):
            raise InternalError("Set POLYWIRE_STORE_KEY: connectors need it with a store that is not a file.")
        try:
            return _key_file(Path(self._settings.store.removeprefix(SQLITE) + ".key"))
        except OSError as error:
            raise InternalError(
                f"The key file beside the store cannot be used ({error.strerror}); set POLYWIRE_STORE_KEY."
            ) from error


def _key_file(path: Path) -> bytes:
    """The key in `path`; of several workers that find none, one makes it and all use that one."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return path.read_bytes()
