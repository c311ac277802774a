"""The application without BentoML, for settings that the shared service does not have."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from adapters import build
from gateway.catalog import Gateway
from gateway.config import Settings
from stores import open_store
from tests.canaries import SEARCH
from tests.conftest import scripted_config
from wires import create_app, wire_of
from wires.auth import AuthMiddleware


@asynccontextmanager
async def in_process(folder: Path, *, client: str = "127.0.0.1", **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application, which sees it come from the address `client`."""
    config = scripted_config(store=f"sqlite:///{folder / 'state' / 'polywire.db'}", grpc_port=0, **settings)
    loaded = Settings(**config)
    store = open_store(loaded.store)
    app = create_app(Gateway(loaded, build, store), store)
    guarded = AuthMiddleware(app, wire_of, loaded)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app=guarded, client=(client, 1))
        hooks = {"response": [_search]}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", event_hooks=hooks) as opened:
            yield opened


async def _search(response: httpx.Response) -> None:
    SEARCH.read((await response.aread()).decode("utf-8", "replace"), f"the answer to {response.request.url}")
