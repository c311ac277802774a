"""The ports, asked for before the workers start: one that cannot be had is a sentence, not the supervisor's traceback.

Workers share the gRPC port by SO_REUSEPORT, and each of them would silently share it with a stranger as well.
"""

from __future__ import annotations

import errno
import socket

from gateway.config import Settings

ANOTHER_PORT = "stop what listens there, or say another one, as in 'make serve PORT=8000', 'bentoml serve --port 8000'"
ANOTHER_GRPC_PORT = "set POLYWIRE_GRPC_PORT to another one, or to 0 to go without gRPC"


def check_port(host: str, port: int) -> None:
    """Raises OSError, with a sentence, when nobody can listen there."""
    _try(host, port, f"Port {port} on {host} is taken; {ANOTHER_PORT}.")


def check_grpc_port(settings: Settings) -> None:
    """Raises OSError, with a sentence, when the gRPC port cannot be had. Port 0 is no port."""
    if settings.grpc_port:
        _try(settings.grpc_host, settings.grpc_port, port_taken(settings))


def _try(host: str, port: int, taken: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        # What an earlier run left in TIME_WAIT does not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError) as error:
            if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
                raise OSError(taken) from None
            raise OSError(f"Polywire cannot listen on port {port} of {host!r}: {_reason(error)}.") from None


def _reason(error: OSError | OverflowError) -> str:
    match error:
        case PermissionError():
            return "ports below 1024 are the administrator's; take a higher one"
        case OverflowError():
            return "a port is a number up to 65535"
        case _:
            return f"{error.strerror}; HOST must be an address of this machine, such as 127.0.0.1 or 0.0.0.0"


def grpc_address(settings: Settings) -> str:
    """Where the server listens, as gRPC writes it."""
    host = f"[{settings.grpc_host}]" if ":" in settings.grpc_host else settings.grpc_host
    return f"{host}:{settings.grpc_port}"


def port_taken(settings: Settings) -> str:
    """The sentence for a port that cannot be had."""
    return f"The gRPC port {settings.grpc_port} on {settings.grpc_host} is taken; {ANOTHER_GRPC_PORT}."
