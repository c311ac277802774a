"""Which addresses a caller-given URL may lead to: public ones, whatever spelling of a private one it uses.

Names are resolved once and what they resolve to is checked and connected to, so a name cannot change in between.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket

from gateway.errors import Forbidden

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


async def resolve_public(host: str, port: int, *, allow_loopback: bool = False) -> str:
    """An address of `host`. Raises Forbidden if any of its addresses is private, or if it has none."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Forbidden(f"The host {host!r} cannot be resolved.", code="unknown_host") from error
    addresses = [str(entry[4][0]) for entry in found]
    for address in addresses:
        parsed = ipaddress.ip_address(address.partition("%")[0])
        if not is_public(parsed) and not (allow_loopback and _embedded(parsed).is_loopback):
            raise Forbidden(f"The host {host!r} leads to an address that is not public.", code="address_not_public")
    return addresses[0]


def is_public(address: Address) -> bool:
    """Whether `address` is one of the open internet's, also in the form of an IPv6 address that carries an IPv4 one."""
    address = _embedded(address)
    return address.is_global and not address.is_multicast and not address.is_reserved


def _embedded(address: Address) -> Address:
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address.teredo is not None:
        return address.teredo[1]
    if int(address) >> 32 == 0 and int(address) > 1:
        return ipaddress.IPv4Address(int(address))
    return address.ipv4_mapped or address.sixtofour or address
