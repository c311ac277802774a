"""TensorZero's gateway as its package embeds it, which chooses its own port: `CONFIG FILE`; FILE becomes the port.

Run by the interpreter that has the package, so nothing else of this repository is imported.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from urllib.parse import urlsplit

from tensorzero import _start_http_gateway  # type: ignore[import-not-found]  # in an environment of its own


def main(config: str, port_file: str) -> None:
    """Serve until the process is ended."""
    gateway = _start_http_gateway(
        config_file=config, clickhouse_url=None, postgres_url=None, valkey_url=None, async_setup=False
    )
    Path(port_file).write_text(str(urlsplit(gateway.base_url).port), encoding="ascii")
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
