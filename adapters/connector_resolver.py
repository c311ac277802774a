"""Names resolve once, and only to addresses that are everybody's; the connection goes to just these addresses."""

from __future__ import annotations

import asyncio
import socket

from aiohttp import ThreadedResolver
from aiohttp.abc import AbstractResolver, ResolveResult

from gateway.addresses import is_public, parse_address
from gateway.errors import InvalidRequest


class PublicResolver(AbstractResolver):
    """aiohttp's resolver, whose answer is refused when any of its addresses is private, link-local or reserved."""

    def __init__(self) -> None:
        self._resolver: ThreadedResolver | None = None

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Every address of `host`. Raises InvalidRequest when one of them is not public, OSError when there is none."""
        if self._resolver is None:
            self._resolver = ThreadedResolver(asyncio.get_running_loop())
        results = await self._resolver.resolve(host, port, family)
        if not results:
            raise OSError(f"The host {host!r} has no address.")
        for result in results:
            address = parse_address(result["host"])
            if address is None or not is_public(address):
                raise InvalidRequest(
                    f"Remote inference host name has private ip address: {host}", code="private_address"
                )
        return results

    async def close(self) -> None:
        """Nothing is held open."""
