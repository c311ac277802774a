"""One `/ws` socket: a task that reads what the client says beside the one turn that may run.

The turn's task belongs to the connection, which cancels and awaits it before anything else is sent in its place.
"""

from __future__ import annotations

import logging

from fastapi import WebSocket

from gateway.catalog import Gateway
from gateway.telemetry import current_request
from wires.websocket.conversation import Conversation
from wires.websocket.outbox import Outbox
from wires.websocket.turn import Turn
from wires.websocket.turns import BareSpeech, ChatTurn, FedSpeech, WholeSpeech

log = logging.getLogger("polywire")

IDLE = 4408
INTERNAL = 1011

TurnJob = BareSpeech | ChatTurn | FedSpeech | WholeSpeech


class Connection:
    """Serves one accepted socket until its client leaves."""

    def __init__(self, socket: WebSocket, gateway: Gateway, wire: str) -> None:
        self._receive = socket.receive
        self._gateway = gateway
        self._wire = wire
        self._outbox = Outbox(socket._send, gateway.settings.limits.send_stall_seconds)
        self._conversation = Conversation()
        self._turn: Turn | None = None
        self._job: TurnJob | None = None
        scope = current_request.get()
        self._request_id = scope.request_id if scope else None
