"""Every route of the service, read from the tables of BentoML's application, of ours and of the gRPC server.

Run as a program it prints them as JSON: [kind, path, method] each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.running import ROOT


@dataclass(frozen=True, slots=True, order=True)
class Route:
    """One way in. `kind` is http, websocket or mount."""

    kind: str
    path: str
    method: str

    @property
    def address(self) -> str:
        """The path with its parameters filled in."""
        parts = [
            "x" if part.startswith("{") and part.endswith("}") else part.replace("{path:path}", "x")
            for part in self.path.split("/")
        ]
        return "/".join(parts) or "/"


def all_routes(folder: Path) -> list[Route]:
    """Read in a process of its own: importing the service makes it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("POLYWIRE")}
    environment |= {
        "POLYWIRE_STORE": f"sqlite:///{folder / 'routes.db'}",
        "POLYWIRE_GRPC_PORT": "0",
        "BENTOML_HOME": str(folder / "bentoml"),
    }
    command = [sys.executable, "-m", "tests.trust.routes"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return [Route(*row) for row in json.loads(done.stdout.splitlines()[-1])]


def _walk(routes: Any) -> Iterator[Route]:
    for route in routes:
        inner = getattr(route, "original_router", None)
        if inner is not None:
            yield from _walk(inner.routes)
        elif "WebSocket" in type(route).__name__:
            yield Route("websocket", route.path, "GET")
        elif getattr(route, "methods", None):
            yield from (Route("http", route.path, method) for method in sorted(route.methods))
        elif route.path:
            yield Route("mount", f"{route.path}/x", "GET")


def _print() -> None:
    import service

    outer = service.service.to_asgi()
    while not hasattr(outer, "routes"):
        outer = outer.app
    found = sorted({*_walk(outer.routes), *_walk(service.app.routes)})
    print(json.dumps([[route.kind, route.path, route.method] for route in found]))  # noqa: T201 - a program's output


if __name__ == "__main__":
    _print()
