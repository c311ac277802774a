"""How a Redis is reached: what a URL means, one connection with all scripts loaded, and what is said when it fails.

No message names more of the URL than host and port: it may hold a password.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from urllib.parse import urlsplit

from redis.asyncio.connection import Connection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from gateway.config_errors import ConfigError
from gateway.errors import GatewayError
from stores.redis_scripts import SCRIPTS

log = logging.getLogger("polywire")

CONNECT_SECONDS = 2.0
LOST: tuple[type[Exception], ...] = (RedisError, OSError, TimeoutError)
"""What a connection that is no longer of use raises."""


class Server:
    """The Redis at `url`. Raises ConfigError for a URL that cannot be used."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        number = parts.path.removeprefix("/")
        if not parts.hostname or (number and not number.isdecimal()):
            raise ConfigError("store: a Redis is named as 'redis://user:password@host:6379/0', or 'rediss://' for TLS.")
        self.address = f"{parts.hostname}:{parts.port or 6379}"
        self.database = int(number or 0)
        try:
            self._pool: ConnectionPool = ConnectionPool.from_url(
                url,
                protocol=2,
                socket_timeout=None,
                socket_connect_timeout=CONNECT_SECONDS,
                socket_keepalive=True,
                retry=Retry(NoBackoff(), 0),
                driver_info=None,
            )
            self._new_connection()
        except (TypeError, ValueError) as error:
            raise ConfigError(f"store: an option in the URL of the Redis {self.address} is wrong.") from error
        self._failing = False

    async def connect(self) -> Connection:
        """A connection with the scripts loaded. Raises one of LOST."""
        connection = self._new_connection()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await connection.connect()  # type: ignore[no-untyped-call]  # redis ships no type for it
                for script in SCRIPTS:
                    await connection.send_command("SCRIPT", "LOAD", script.text, check_health=False)
                for _ in SCRIPTS:
                    await connection.read_response()
        except BaseException:
            await disconnect(connection)
            raise
        if self._failing:
            self._failing = False
            log.warning("the store at %s answers again", self.address)
        return connection

    def report(self, error: Exception) -> None:
        """Log that the server fails, once until it answers again."""
        if not self._failing:
            self._failing = True
            log.error("the store at %s does not answer: %s", self.address, type(error).__name__)

    def unavailable(self, cause: Exception | None = None) -> GatewayError:
        """What a caller is told; of Redis's own answer only its kind, since its text may quote a value."""
        said = f" ({type(cause).__name__})" if isinstance(cause, ResponseError) else ""
        return GatewayError(
            f"The store at {self.address} does not answer{said}; try again in a moment.",
            status=503,
            code="store_unavailable",
            retryable=True,
            retry_after=1,
        )

    def _new_connection(self) -> Connection:
        connection: Connection = self._pool.make_connection()  # type: ignore[no-untyped-call]  # redis ships no type for it
        return connection


async def disconnect(connection: Connection) -> None:
    """Drop a connection in whatever state it is."""
    with suppress(*LOST):
        await connection.disconnect(nowait=True)
