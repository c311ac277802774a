"""Which addresses a caller-given URL may lead to: public ones, whatever spelling of a private one it uses.

The one rule set for webhooks and connectors.

Names are resolved once and what they resolve to is checked and connected to, so a name cannot change in between.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket

from gateway.errors import Forbidden

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
SPECIAL = tuple(
    ipaddress.ip_network(network)
    for network in (
        "192.0.0.0/24",  # protocol assignments; a cloud's metadata is at .192
        "192.88.99.0/24",  # 6to4 relays
        "64:ff9b:1::/48",  # a site's own NAT64, whose inner address cannot be told
        "::ffff:0:0:0/96",  # stateless translation
        "2001::/23",  # protocol assignments
        "3fff::/20",  # documentation
        "5f00::/16",  # segment routing
        "fec0::/10",  # site-local
    )
)
"""What older Pythons take for global."""


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
    if any(address in network for network in SPECIAL):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def is_literal(host: str) -> bool:
    """Whether `host` is an address or this machine by name, in any of the spellings that resolvers take."""
    return parse_address(host) is not None or host.rstrip(".").lower() == "localhost"


def parse_address(host: str) -> Address | None:
    """The address that `host` spells: dotted, one number, hexadecimal, octal, shortened or IPv6. None for a name."""
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return _loose_ipv4(host)


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


def _loose_ipv4(host: str) -> ipaddress.IPv4Address | None:
    """inet_aton's spellings: one to four numbers, each decimal, octal (0...) or hexadecimal (0x...)."""
    try:
        *first, last = [_loose_number(part) for part in host.rstrip(".").split(".")]
    except ValueError:
        return None
    if len(first) > 3 or any(number > 255 for number in first) or last >= 256 ** (4 - len(first)):
        return None
    return ipaddress.IPv4Address(sum(number << (24 - 8 * place) for place, number in enumerate(first)) + last)


def _loose_number(part: str) -> int:
    if not re.fullmatch(r"0[xX][0-9a-fA-F]*|[0-9]+", part):
        raise ValueError(part)
    if part[:2].lower() == "0x":
        return int(part[2:] or "0", 16)
    return int(part, 8 if part[0] == "0" else 10)
