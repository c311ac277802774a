"""The providers of the configured rows, built when they are first needed and closed together.

To build one imports its vendor's SDK, which takes a second or more: that happens in a thread, never on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from gateway.config import Kind, ProviderRow, Settings
from gateway.errors import GatewayError
from gateway.ports import Provider

log = logging.getLogger("polywire")

Builder = Callable[[ProviderRow, Kind, Settings], Provider]
Key = tuple[str, Kind]


class Providers:
    """One worker's providers, by row and kind."""

    def __init__(self, settings: Settings, build: Builder) -> None:
        self._settings = settings
        self._build = build
        self._built: dict[Key, Provider] = {}
        self._building: dict[Key, asyncio.Task[Provider]] = {}

    async def get(self, row: ProviderRow, kind: Kind) -> Provider:
        """The provider of `row` for `kind`. Raises GatewayError when it cannot be built, and tries anew next time."""
        key = (row.name, kind)
        if built := self._built.get(key):
            return built
        if key not in self._building:
            # Whoever waits may be cancelled; the provider that is being built is for all.
            building = self._building[key] = asyncio.create_task(self._make(row, kind))
            building.add_done_callback(_seen)
        return await asyncio.shield(self._building[key])

    async def aclose(self) -> None:
        """Close every provider that was built."""
        await asyncio.gather(*self._building.values(), return_exceptions=True)
        built, self._built = self._built, {}
        for provider in built.values():
            try:
                await provider.aclose()
            except GatewayError:
                log.exception("provider %r did not close", provider.name)

    async def _make(self, row: ProviderRow, kind: Kind) -> Provider:
        key = (row.name, kind)
        try:
            self._built[key] = await asyncio.to_thread(self._build, row, kind, self._settings)
            return self._built[key]
        finally:
            del self._building[key]


def _seen(building: asyncio.Task[Provider]) -> None:
    """Also when nobody waits any more: the next request meets the same error and tells it."""
    if not building.cancelled():
        building.exception()
