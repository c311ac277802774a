"""The Realtime protocol, GA: `WS /v1/realtime` and its client secrets.

`session.py` is the protocol as a state machine without I/O, `pump.py` connects it with the socket and the gateway.
"""

from __future__ import annotations

from wires.openai.realtime import client_secrets, routes

__all__ = ["ROUTERS"]

ROUTERS = (client_secrets.router, routes.router)
