"""The gRPC port, asked for before the workers start, without importing gRPC.

Workers share the port by SO_REUSEPORT, and each of them would silently share it with a stranger as well.
"""

from __future__ import annotations

import socket

from gateway.config import Settings


def check_grpc_port(settings: Settings) -> None:
    """Raises OSError, with a sentence, when the gRPC port is taken. Port 0 is no port."""
    if not settings.grpc_port:
        return
    family = socket.AF_INET6 if ":" in settings.grpc_host else socket.AF_INET
    with socket.socket(family) as probe:
        # What an earlier run left in TIME_WAIT does not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.grpc_host, settings.grpc_port))
        except OSError:
            raise OSError(port_taken(settings)) from None


def grpc_address(settings: Settings) -> str:
    """Where the server listens, as gRPC writes it."""
    host = f"[{settings.grpc_host}]" if ":" in settings.grpc_host else settings.grpc_host
    return f"{host}:{settings.grpc_port}"


def port_taken(settings: Settings) -> str:
    """The sentence for a port that cannot be had."""
    return (
        f"The gRPC port {settings.grpc_port} on {settings.grpc_host} is taken; "
        "set POLYWIRE_GRPC_PORT to another one, or to 0 to go without gRPC."
    )
