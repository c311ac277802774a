"""State that outlives a request: which store a URL means.

`sqlite:///polywire.db` is a file in the working directory, so each deployment has its own; four slashes make the path
absolute. `redis://user:password@host:6379/0` is shared by replicas; `rediss://` is the same with TLS.
"""

from __future__ import annotations

from pathlib import Path

from gateway.config_errors import ConfigError
from gateway.ports import Store
from stores.redis import RedisStore
from stores.sqlite import SqliteStore

SQLITE = "sqlite:///"
REDIS = ("redis://", "rediss://")


def open_store(url: str) -> Store:
    """The store at `url`, opened by its first use. Raises ConfigError for a URL that means none, without quoting it."""
    if url.startswith(SQLITE):
        path = url.removeprefix(SQLITE)
        if path in ("", ":memory:"):
            raise ConfigError(f"store: {url!r} names no file; the workers share one, such as 'sqlite:///polywire.db'.")
        return SqliteStore(Path(path))
    if url.startswith(REDIS):
        return RedisStore(url)
    raise ConfigError(
        "store: this is no store; write 'sqlite:///' and the path of a file,"
        " or 'redis://host:6379/0' ('rediss://' with TLS)."
    )
