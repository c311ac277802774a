"""State that outlives a request: which store a URL means.

`sqlite:///polywire.db` is a file in the working directory, so each deployment has its own; four slashes make the path
absolute.
"""

from __future__ import annotations

from pathlib import Path

from gateway.config_errors import ConfigError
from gateway.ports import Store
from stores.sqlite import SqliteStore

SQLITE = "sqlite:///"


def open_store(url: str) -> Store:
    """The store at `url`; its file is opened by its first use. Raises ConfigError for a URL that means none."""
    if url.startswith(SQLITE):
        path = url.removeprefix(SQLITE)
        if path in ("", ":memory:"):
            raise ConfigError(f"store: {url!r} names no file; the workers share one, such as 'sqlite:///polywire.db'.")
        return SqliteStore(Path(path))
    if url.startswith(("redis://", "rediss://")):
        raise ConfigError("store: Redis is not supported by this version; use a file, such as 'sqlite:///polywire.db'.")
    raise ConfigError(f"store: {url!r} is no store; write 'sqlite:///' and the path of a file.")
